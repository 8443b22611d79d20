"""Section dkms: modules that are built on the node, and the kernels that they are built for."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

BUILDS = at_most(4096)  # of DKMS: modules, in each version, for each kernel


class DkmsBuild(Record, frozen=True, kw_only=True):
    """A module that is installed for a kernel: /var/lib/dkms/<module>/kernel-<release>-<arch>."""

    kernel: Text | None = None  # 5.15.0-105-generic
    version: Text | None = None  # the module's: 550.90.07
    missing: int | None = None  # of its files, that are not below /lib/modules/<kernel>


class DkmsModule(Record, frozen=True, kw_only=True):
    """A module that DKMS knows."""

    name: Text  # nvidia
    # that it can build: those whose source it has
    versions: Annotated[tuple[Text, ...], BUILDS] | None = None
    builds: Annotated[tuple[DkmsBuild, ...], BUILDS] | None = None


class Dkms(SectionRecord, frozen=True, kw_only=True):
    """/var/lib/dkms, /lib/modules, /boot. `absent` if DKMS has no modules."""

    unique = ("modules[].name",)

    running: Text | None = None  # /proc/sys/kernel/osrelease
    # releases in /lib/modules with a vmlinuz to boot
    kernels: Annotated[tuple[Text, ...], BUILDS] | None = None
    # those of `running` and `kernels` that have /lib/modules/<kernel>/build/include
    headers: Annotated[tuple[Text, ...], BUILDS] | None = None
    modules: Annotated[tuple[DkmsModule, ...], BUILDS] | None = None
