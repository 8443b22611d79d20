"""Section cpuidle."""

from typing import Annotated

from nodevet.base.bounds import NumberList, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

IDLE_STATES = at_most(1024)  # kinds: a CPU has 10 at most, and a machine a few kinds of CPUs

NO_LIMIT_US = 2_000_000_000
"""PM_QOS_CPU_LATENCY_DEFAULT_VALUE: no program requested less."""


class IdleState(Record, frozen=True, kw_only=True):
    """A state that some CPUs have: /sys/devices/system/cpu/cpu*/cpuidle/state*."""

    name: Text | None = None  # POLL, C1, C6
    latency_us: int | None = None  # to leave it
    cpus: NumberList | None = None
    enabled_cpus: NumberList | None = None  # those whose `disable` is 0


class Cpuidle(SectionRecord, frozen=True, kw_only=True):
    """How deep the CPUs may sleep. `absent`: not asked for."""

    plural = "idle states"

    driver: Text | None = None  # intel_idle, acpi_idle, haltpoll, none
    governor: Text | None = None
    latency_limit_us: int | None = None  # /dev/cpu_dma_latency
    count: int | None = None  # of the states
    states: Annotated[tuple[IdleState, ...], IDLE_STATES] | None = None
