"""Section mounts."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

MOUNTS = at_most(512)  # that hold data; the probe keeps 256


class Mount(Record, frozen=True, kw_only=True):
    """What is mounted at a path, as a process that opens it would see it. /proc/1/mountinfo."""

    name: Text  # the path
    mounted: bool | None = None  # a file system, and not only an automount
    automount: bool | None = None  # autofs is there, or above: what it mounts was not used yet
    type: Text | None = None  # ext4, xfs, nfs4, fuse.juicefs
    source: Text | None = None  # /dev/md0, server:/export
    root: Text | None = None  # what of the file system: / unless it is a bind mount or a subvolume
    options: Annotated[tuple[Text, ...], bounds.MOUNT_OPTIONS] | None = None  # of the mount
    # of the file system: `ro` if either has it
    super_options: Annotated[tuple[Text, ...], bounds.MOUNT_OPTIONS] | None = None


class ConfiguredMount(Record, frozen=True, kw_only=True):
    """What /etc/fstab or a unit of type mount says about a path."""

    name: Text  # the path
    empty: bool | None = None  # whether its folder is; read only on a local file system
    file: Text | None = None  # /etc/fstab, or the unit's; "" if neither names the path
    type: Text | None = None
    source: Text | None = None  # a tag, such as UUID=, and a link as the device's path
    options: Annotated[tuple[Text, ...], bounds.MOUNT_OPTIONS] | None = None  # none of a password


class Mounts(SectionRecord, frozen=True, kw_only=True):
    """The paths that a baseline names, and the other mounts that hold data, without those of
    containers. `configured` is read of the named paths if a fix asks for it, and else empty."""

    unique = ("configured[].name", "mounts[].name", "others[].name")

    mounts: Annotated[tuple[Mount, ...], bounds.ASKED] | None = None
    others: Annotated[tuple[Mount, ...], MOUNTS] | None = None
    configured: Annotated[tuple[ConfiguredMount, ...], bounds.ASKED] | None = None
