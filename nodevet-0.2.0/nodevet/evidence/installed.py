"""Section installed: the packages that a baseline names."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord

PACKAGE_NAME = r"[A-Za-z0-9*][A-Za-z0-9+._*-]{0,127}(:[a-z0-9-]{1,20})?"
"""A regular expression: a package name of dpkg or rpm, in which `*` matches any text; dpkg's
architecture follows a colon.
"""


class InstalledPackage(Record, frozen=True, kw_only=True):
    """A package that the package manager knows. /var/lib/dpkg/status; `rpm -qa`."""

    name: Text | None = None
    architecture: Text | None = None
    version: Text | None = None  # with its epoch, if it has one: 1:550.90.07-1
    # dpkg's: installed, config-files, half-configured, unpacked, ...; of rpm always installed
    state: Text | None = None
    held: bool | None = None  # apt-mark hold; versionlock or an exclude of dnf


class AskedPackage(Record, frozen=True, kw_only=True):
    """A name that was asked for, and every package that has it."""

    name: Text  # as it was asked for: nvidia-fabricmanager-*
    found: Annotated[tuple[InstalledPackage, ...], bounds.PACKAGES] | None = None


class InstalledPackages(SectionRecord, frozen=True, kw_only=True):
    """The packages that were asked for. `absent` without dpkg and rpm."""

    unique = ("packages[].name",)

    manager: Text | None = None  # dpkg or rpm: they order versions differently; "" if not asked
    packages: Annotated[tuple[AskedPackage, ...], bounds.ASKED] | None = None
