"""Section packages."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class Package(Record, frozen=True, kw_only=True):
    """A package of the NVIDIA driver, or of its surroundings. dpkg-query, apt-cache; rpm."""

    # as the package manager has it: nvidia-dkms-550, libnvidia-compute-550:amd64; of rpm with its
    # architecture, nvidia-driver.x86_64
    name: Text
    version: Text | None = None  # installed; of rpm, [epoch:]version-release
    held: bool | None = None  # apt-mark hold, dnf versionlock add, zypper addlock
    automatic: bool | None = None  # it came with another one: apt-mark auto
    # versions in the node's repositories; of apt, highest first
    offers: Annotated[tuple[Text, ...], bounds.PACKAGES] | None = None


class ModuleStream(Record, frozen=True, kw_only=True):
    """A stream of dnf's module nvidia-driver. dnf module info."""

    name: Text  # 550-open
    active: bool | None = None  # dnf sees the packages of this stream alone
    # those among `packages` of the section, as NAME.ARCHITECTURE=VERSION
    packages: Annotated[tuple[Text, ...], bounds.STREAM] | None = None


class Packages(SectionRecord, frozen=True, kw_only=True):
    """The packages of the driver; not read if the driver is as requested."""

    unique = ("packages[].name", "streams[].name")

    manager: Text | None = None  # dpkg, dnf, zypper; rpm: neither dnf 4 nor zypper is there
    packages: Annotated[tuple[Package, ...], bounds.PACKAGES] | None = None
    can_lock: bool | None = None  # whether zypper or dnf's plugin versionlock can lock packages
    streams: Annotated[tuple[ModuleStream, ...], bounds.PACKAGES] | None = None
    profiles: Text | None = None  # the installed ones of dnf's module nvidia-driver: a, b
