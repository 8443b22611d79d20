"""Section filesystems."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

FILE_SYSTEMS = at_most(512)  # paths that are asked about: 8, and those that a baseline names


class FileSystem(Record, frozen=True, kw_only=True):
    """statvfs(3) of the file system that holds a path."""

    volatile = ("available_b", "inodes_available")

    path: Text
    missing: bool = False  # nothing is there; of paths that a baseline names
    type: Text | None = None  # ext4, xfs, tmpfs, nfs4: /proc/self/mounts
    remote: bool | None = None  # on the network, and so not asked
    size_b: int | None = None
    available_b: int | None = None  # to users without privileges
    inodes: int | None = None  # 0: it does not count them
    inodes_available: int | None = None
    read_only: bool | None = None
    immutable: bool | None = None  # of a kind that is never written: squashfs, an image's overlay


class FileSystems(SectionRecord, frozen=True, kw_only=True):
    """/, /tmp, /var, /var/log, /var/tmp, /dev/shm, /home and /run, of each file system the
    first of them; and each that a baseline names. `absent` for captured files."""

    unique = ("filesystems[].path",)

    filesystems: Annotated[tuple[FileSystem, ...], FILE_SYSTEMS] | None = None
    found: Annotated[tuple[Text, ...], FILE_SYSTEMS] | None = None  # paths of all of them
