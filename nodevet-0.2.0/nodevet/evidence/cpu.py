"""Section cpu."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Text
from nodevet.evidence.core import SectionRecord


class Cpu(SectionRecord, frozen=True, kw_only=True):
    """/sys/devices/system/cpu: {online,offline,present}, cpu*/topology, smt; /proc/cpuinfo."""

    model_name: Text | None = None
    vendor: Text | None = None
    online: NumberList | None = None  # cpulist
    offline: NumberList | None = None  # of all that the kernel is ready for, plugged in or not
    present: NumberList | None = None  # plugged in, online or not
    threads: int | None = None  # logical CPUs online
    cores: int | None = None  # distinct (package, core) online
    sockets: int | None = None
    # physical_package_id -> cpulist
    packages: Annotated[dict[Text, NumberList], bounds.CPUS] | None = None
    smt_active: bool | None = None
    smt_control: Text | None = None  # on, off, forceoff, notsupported, notimplemented
