"""Section packages."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class Package(Record, frozen=True, kw_only=True):
    """A package of the NVIDIA driver, or of its surroundings. dpkg-query, apt-cache; rpm."""

    name: Text  # as the package manager has it: nvidia-dkms-550, libnvidia-compute-550:amd64
    version: Text | None = None  # installed
    held: bool | None = None  # apt-mark hold
    automatic: bool | None = None  # it came with another one: apt-mark auto
    # versions in the node's repositories, highest first
    offers: Annotated[tuple[Text, ...], bounds.PACKAGES] | None = None


class Packages(SectionRecord, frozen=True, kw_only=True):
    """The packages of the driver; not read if the driver is as requested."""

    unique = ("packages[].name",)

    manager: Text | None = None  # dpkg or rpm
    packages: Annotated[tuple[Package, ...], bounds.PACKAGES] | None = None
