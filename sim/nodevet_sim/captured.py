"""The /sys and /proc of a real machine, from a directory or an archive of them.

Read are directories, tar archives (plain, gzip, bzip2, xz; hwloc-gather-topology and the
snapshots of ghw among them) and the ttar files of Prometheus. Nothing is written to disk
and no symbolic link is followed. Files are what the kernel printed when they were taken,
with its newlines; what could not be read then is missing.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodevet_sim.state import StateError

MEMBERS = 200_000
TOTAL = 256 << 20  # bytes of all files
FILE = 16 << 20  # bytes of one file
STREAM = TOTAL + MEMBERS * 1536  # bytes of an archive, unpacked: each member has its headers
BROKEN = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, LookupError, OverflowError, RecursionError),
)
Unpack = Callable[[io.BufferedReader], io.BufferedIOBase]
MAGIC: tuple[tuple[bytes, Unpack], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
TTAR = b"# Archive created by ttar"
SEPARATOR = b"# ttar -"
TREES = ("sys", "proc")
GIVE = "give the directory, tar or ttar file that has sys or proc in it"


@dataclass(frozen=True)
class CapturedTree:
    """Paths have no leading slash and begin with sys/ or proc/. Leaves out empty directories.
    `skipped` names what is there and was not taken, and why.
    """

    files: dict[str, bytes]
    links: dict[str, str]  # path -> target, as readlink gives it
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _Member:
    """`content` is the bytes of a file, the target of a link, the reason of a skip."""

    name: str
    kind: Literal["file", "large", "link", "skip"]
    content: bytes | str


def read(path: Path) -> CapturedTree:
    """Read what lies below sys/ and proc/ of a capture, wherever in it these two are.

    Bounds: 200,000 members, 256 MiB in all, 16 MiB a file. Raises StateError with the path if it is
    not a capture, is broken or too large, has absolute names or names with `..`, or has the trees
    of several machines.
    """
    try:
        members = [*_bounded(_members(path), path)]
    except StateError:
        raise
    except BROKEN as error:
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StateError(f"{path}: cannot be read as a captured tree: {what}; {GIVE}") from None
    return _below(path, _prefix(path, members), members)


def _bounded(members: Iterator[_Member], path: Path) -> Iterator[_Member]:
    total = 0
    for count, member in enumerate(members, start=1):
        total += len(member.content) if member.kind == "file" else 0
        if count > MEMBERS:
            raise StateError(f"{path}: more than {MEMBERS} members; capture less")
        if total > TOTAL:
            raise StateError(f"{path}: more than {TOTAL >> 20} MiB of files; capture less")
        yield member


def _prefix(path: Path, members: list[_Member]) -> tuple[str, ...]:
    """The parts of the path of the directory that holds sys or proc. Raises StateError."""
    prefixes: set[tuple[str, ...]] = set()
    for member in members:
        parts = _parts(path, member.name)
        prefixes.update(parts[:at] for at in range(len(parts) - 1) if parts[at] in TREES)
    if not prefixes:
        raise StateError(f"{path}: it contains neither sys nor proc; {GIVE}")
    depth = min(map(len, prefixes))
    highest = sorted("/".join(parts) for parts in prefixes if len(parts) == depth)
    if len(highest) > 1:
        shown = ", ".join(highest[:4])
        raise StateError(
            f"{path}: it contains sys or proc in several places: {shown}; give one of them"
        )
    return tuple(highest[0].split("/")) if highest[0] else ()


def _parts(path: Path, name: str) -> tuple[str, ...]:
    if name.startswith("/") or ".." in name.split("/"):
        raise StateError(f"{path}: the name {ascii(name)[:200]} leads out of it; pack it again")
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _below(path: Path, prefix: tuple[str, ...], members: list[_Member]) -> CapturedTree:
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    skipped: list[str] = []
    for member in members:
        parts = _parts(path, member.name)
        inside = parts[len(prefix) :]
        if parts[: len(prefix)] != prefix or not inside or inside[0] not in TREES:
            continue
        name = "/".join(inside)
        if member.kind == "large":
            raise StateError(f"{path}: {name} is larger than {FILE >> 20} MiB; leave it out")
        why = _refusal(name, member)
        if why is not None:
            skipped.append(f"{ascii(name)[1:-1]}: {why}")
        elif isinstance(member.content, bytes):  # of equal names the last counts, as tar has it
            links.pop(name, None)
            files[name] = member.content
        else:
            files.pop(name, None)
            links[name] = member.content
    for name in (*files, *links):
        for end in (match.start() for match in re.finditer("/", name)):
            if name[:end] in files or name[:end] in links:
                raise StateError(
                    f"{path}: {name} lies below {name[:end]}, which is not a directory; "
                    "pack it again"
                )
    return CapturedTree(files, links, tuple(skipped))


def _refusal(name: str, member: _Member) -> str | None:
    """Why this is not taken, or None."""
    if member.kind == "skip":
        return str(member.content)
    if not name.isprintable():
        return "its name is not printable"
    if isinstance(member.content, bytes):
        return "a file, where a directory belongs" if name in TREES else None
    target = member.content
    if name in TREES or not target or not target.isprintable():
        return f"a link to {ascii(target)[:200]}"
    if target.startswith("/") and target.split("/")[1] not in TREES:
        return f"a link to {target[:200]}, outside the tree"
    return None


def _members(path: Path) -> Iterator[_Member]:
    if path.is_dir():
        yield from _directory(path)
        return
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        start = file.read(len(TTAR))
        file.seek(0)
        if start == TTAR:
            yield from _ttar(file.read(TOTAL + 1), path)
            return
        unpack = next((unpack for magic, unpack in MAGIC if start.startswith(magic)), None)
        yield from _tar(file if unpack is None else unpack(file), path)


def _directory(top: Path) -> Iterator[_Member]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield _Member(str(folder.relative_to(top)), "skip", f"cannot be read: {error.strerror}")
            continue
        for entry in entries:
            name = str(Path(entry.path).relative_to(top))
            if entry.is_symlink():
                yield _Member(name, "link", os.readlink(entry.path))  # noqa: PTH115 - as it is
            elif entry.is_dir():
                waiting.append(Path(entry.path))
            elif not entry.is_file():
                yield _Member(name, "skip", "not a regular file")
            else:
                yield _from_disk(name, entry.path)


def _from_disk(name: str, place: str) -> _Member:
    """A file that the kernel or the permissions do not give is skipped, as a capture does."""
    try:
        with Path(place).open("rb") as file:
            data = file.read(FILE + 1)
    except OSError as error:
        return _Member(name, "skip", f"cannot be read: {error.strerror}")
    return _file(name, data)


def _file(name: str, data: bytes) -> _Member:
    """A size matters only for files that are used."""
    return _Member(name, "large", "") if len(data) > FILE else _Member(name, "file", data)


class _Stream(io.RawIOBase):
    """The unpacked bytes of an archive: at most so many; keeps the last ones."""

    def __init__(self, source: io.BufferedIOBase, path: Path) -> None:
        self.source, self.path = source, path
        self.count, self.tail = 0, b""

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self.count += len(data)
        self.tail = (self.tail + data)[-512:]
        if self.count > STREAM:
            raise StateError(f"{self.path}: unpacks to more than {STREAM >> 20} MiB; capture less")
        return data


def _tar(source: io.BufferedIOBase, path: Path) -> Iterator[_Member]:
    stream = _Stream(source, path)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isdir():
                continue
            if member.issym():
                yield _Member(member.name, "link", member.linkname)
            elif not member.isreg() or member.issparse():
                kind = "a hard link" if member.islnk() else "not a regular file"
                yield _Member(member.name, "skip", kind)
            else:
                yield _of_tar(archive, member, path)
    while stream.read():
        pass
    if stream.tail.strip(b"\0") or len(stream.tail) < 512:  # tarfile takes any end for the end
        raise StateError(f"{path}: the archive is truncated; copy it again")


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> _Member:
    content = archive.extractfile(member)
    data = b"" if content is None else content.read(FILE + 1)
    if len(data) < min(member.size, FILE + 1):
        raise StateError(f"{path}: the archive is truncated in {member.name}; copy it again")
    return _file(member.name, data)


def _ttar(data: bytes, path: Path) -> Iterator[_Member]:
    """The text archive of Prometheus' fixtures. `Lines:` counts the lines that follow it."""
    if len(data) > TOTAL:
        raise StateError(f"{path}: more than {TOTAL >> 20} MiB; capture less")
    rows = data.split(b"\n")
    name, at = "", 0
    while at < len(rows):
        key, _, value = rows[at].partition(b": ")
        text = value.decode("utf-8", "surrogateescape")
        at += 1
        if key == b"Path":
            name = text
        elif key == b"SymlinkTo":
            yield _Member(name, "link", text)
        elif key == b"Lines":
            if not re.fullmatch(rb"[0-9]{1,9}", value) or at + int(value) >= len(rows):
                raise StateError(f"{path}:{at}: ends before its lines; copy it again")
            yield _file(name, _ttar_content(rows[at : at + int(value)]))
            at += int(value)
        elif key not in (b"Directory", b"Mode", b"") and not key.startswith((SEPARATOR, TTAR)):
            raise StateError(f"{path}:{at}: not a valid line of a ttar archive; copy it again")


def _ttar_content(rows: list[bytes]) -> bytes:
    """NULLBYTE is a null byte and EOF at the very end no newline, unless after a backslash."""
    text = b"".join(row + b"\n" for row in rows)
    if re.search(rb"(?<!\\)EOF\n\Z", text):
        text = text[: -len(b"EOF\n")]
    text = re.sub(rb"(?<!\\)NULLBYTE", b"\0", text)
    return text.replace(b"\\NULLBYTE", b"NULLBYTE").replace(b"\\EOF", b"EOF")


AREAS = {  # area -> its paths, and those without which it is not described
    "sys/devices/system/cpu": (r"sys/(devices/system|bus)/cpu/", r".*/cpu[0-9]+/"),
    "sys/devices/system/node": (r"sys/(devices/system|bus)/node/", r".*/node[0-9]+/cpu(list|map)$"),
    "sys/bus/pci": (
        r"(sys/(bus/pci(_express)?/|devices/pci[0-9a-f]{4,8}:|class/(net|infiniband|nvme)/"
        r"|kernel/iommu_groups/)|proc/irq/)",
        r".*/[0-9a-f:]+\.[0-7]/vendor$",
    ),
    "sys/class/dmi": (r"sys/(class|devices/virtual)/dmi/", r".*/id/(sys_|product_|board_)"),
    "sys/devices/system/clocksource": (r"sys/devices/system/clocksource/", r".*/current_"),
    "sys/devices/system/edac": (r"sys/devices/system/edac/", r".*/mc[0-9]+/ue_count$"),
    "sys/kernel/mm/hugepages": (r"sys/kernel/mm/hugepages/", r".*/nr_hugepages$"),
    "sys/kernel/mm/transparent_hugepage": (r"sys/kernel/mm/transparent_hugepage/", r".*/enabled$"),
    "sys/module": (r"sys/module/", r""),
    "proc/buddyinfo": (r"proc/buddyinfo$", r""),
    "proc/cmdline": (r"proc/cmdline$", r""),
    "proc/cpuinfo": (r"proc/cpuinfo$", r""),
    "proc/driver/nvidia": (r"proc/driver/nvidia/", r".*/version$"),
    "proc/driver/nvidia-fs": (r"proc/driver/nvidia-fs/", r".*/stats$"),
    "proc/loadavg": (r"proc/loadavg$", r""),
    "proc/mdstat": (r"proc/mdstat$", r""),
    "proc/meminfo": (r"proc/meminfo$", r""),
    "proc/modules": (r"proc/modules$", r""),
    "proc/swaps": (r"proc/swaps$", r""),
    "proc/sys": (r"proc/sys/", r"$"),  # single values, never the whole
}


def area_of(path: str) -> str | None:
    """The area of the kernel's tree that a path belongs to; None for all others.

    >>> area_of("sys/devices/pci0000:00/0000:00:01.0/vendor")
    'sys/bus/pci'
    """
    return next((area for area, (paths, _) in AREAS.items() if re.match(paths, path)), None)


def areas(captured: CapturedTree) -> frozenset[str]:
    """The areas that a capture describes completely, so that nothing else belongs there.

    A few files alone (the numa_node of one PCI function, the list of online NUMA nodes) describe no
    area; they replace these files in any other description.
    """
    return frozenset(
        area
        for area, (paths, needed) in AREAS.items()
        if any(re.match(paths, path) and re.match(needed, path) for path in captured.files)
    )
