"""The programs, libraries and pristine configuration of a node's packages, in their own folder.

A node sees nothing else of this machine: no other package, no unit, user, setting or file. The
folder does not change while apt replaces files here: dpkg writes new files.

Paths are text here: a `Path` for each of the thousands would take longer than all the rest.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nodevet_sim.nspawn.packages import PackageOfNode

INFO = "/var/lib/dpkg/info"
UNREAD = (  # what only people read
    "/usr/share/bash-completion/",
    "/usr/share/bug/",
    "/usr/share/doc/",
    "/usr/share/doc-base/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/locale/",
    "/usr/share/man/",
)
MOST_LINKS = 40  # in a row; see path_resolution(7)


@dataclass(frozen=True)
class PackageFiles:
    """The files of some packages of a machine whose root is `machine`."""

    machine: Path
    packages: tuple[PackageOfNode, ...]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """lib -> usr/lib, where the machine's /lib is that link."""
        links = (path for path in self.machine.iterdir() if path.is_symlink())
        targets = {path.name: str(path.readlink()).strip("/") for path in links}
        return {name: target for name, target in targets.items() if target.startswith("usr/")}

    @cached_property
    def owned(self) -> frozenset[str]:
        """Every path of the packages, under its real name."""
        lists = (name for package in self.packages for name in package.lists)
        return frozenset(
            self.real(row)
            for name in lists
            for row in self._list(name)
            if row.startswith("/") and row != "/."
        )

    def _list(self, name: str) -> list[str]:
        place = Path(self.machine_path(f"{INFO}/{name}.list"))
        with suppress(FileNotFoundError):
            return place.read_text(encoding="utf-8", errors="replace").splitlines()
        return []

    def machine_path(self, path: str) -> str:
        """The location of a path of the machine."""
        return f"{self.top}{path}"

    @cached_property
    def top(self) -> str:
        """The machine's root, as a prefix for paths."""
        return str(self.machine).rstrip("/")

    def real(self, path: str) -> str:
        """The same path without a link to /usr at its start."""
        first, slash, rest = path.lstrip("/").partition("/")
        return f"/{self.aliases.get(first, first)}{slash}{rest}"

    def target(self, path: str) -> str:
        """The end of a chain of links, on the machine."""
        for _ in range(MOST_LINKS):
            try:
                to = os.readlink(self.machine_path(path))
            except OSError:
                break
            path = self.real(os.path.normpath(os.path.join(os.path.dirname(path), to)))
        return path

    def made_files(self) -> Iterator[str]:
        """What the packages' scripts made of their files: links to them, and compiled Python."""
        for folder in sorted({os.path.dirname(path) for path in self.owned}):
            if folder.startswith("/usr/") and not f"{folder}/".startswith(UNREAD):
                yield from self._made_in(folder)

    def _made_in(self, folder: str) -> Iterator[str]:
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self.machine_path(folder)) as entries,
        ):
            for entry in entries:
                path = f"{folder}/{entry.name}"
                if entry.name == "__pycache__":
                    yield from self._compiled_files(folder)
                elif entry.is_symlink() and path not in self.owned:
                    yield from self._alternative(path)

    def _alternative(self, path: str) -> Iterator[str]:
        """A link to a file of the packages, and the one of /etc/alternatives on the way there."""
        if self.target(path) in self.owned:
            yield path
            first = os.readlink(self.machine_path(path))
            if first.startswith("/etc/alternatives/"):
                yield first

    def _compiled_files(self, folder: str) -> Iterator[str]:
        yield f"{folder}/__pycache__"
        for name in sorted(os.listdir(self.machine_path(f"{folder}/__pycache__"))):
            if f"{folder}/{name.partition('.')[0]}.py" in self.owned:
                yield f"{folder}/__pycache__/{name}"

    def pristine(self) -> Iterator[str]:
        """The files of /etc as the packages installed them."""
        conffiles = {
            path: md5 for package in self.packages for path, md5 in package.conffiles.items()
        }
        for path in sorted(self.owned):
            if path.startswith("/etc/") and path not in conffiles:
                yield path
        yield from (path for path, md5 in sorted(conffiles.items()) if self._md5(path) == md5)

    def _md5(self, path: str) -> str:
        with suppress(OSError):
            content = Path(self.machine_path(path)).read_bytes()
            return hashlib.md5(content, usedforsecurity=False).hexdigest()
        return ""


def copy(files: PackageFiles, into: Path) -> None:
    """Make `into` a root with these files: links to the machine's, copies of configuration."""
    for name, to in sorted(files.aliases.items()):
        (into / name).symlink_to(to)
    shown = [path for path in sorted(files.owned) if not path.startswith(UNREAD)]
    made = [path for path in dict.fromkeys(files.made_files()) if path not in files.owned]
    folders = [path for path in [*shown, *made] if _is_folder(files, path)]
    _put_each(files, into, folders, _folder)
    programs = (path for path in shown if not path.startswith(("/etc/", "/var/")))
    lists = (f"{INFO}/{name}.list" for package in files.packages for name in package.lists)
    _put_each(files, into, _exclude(programs, folders), _link)
    _put_each(files, into, _exclude(made, folders), _link)
    _put_each(files, into, _exclude(files.pristine(), folders), _copy)
    _put_each(files, into, (f"{INFO}/format", *lists), _copy)


def _exclude(paths: Iterable[str], out: Iterable[str]) -> Iterator[str]:
    left_out = frozenset(out)
    return (path for path in paths if path not in left_out)


def _is_folder(files: PackageFiles, path: str) -> bool:
    """Whether it is a folder, or a link to one; in /usr, to one that no package provides."""
    source = files.machine_path(path)
    kept = path.startswith("/usr/") and files.target(path) in files.owned
    return os.path.isdir(source) and not (kept and os.path.islink(source))


def _put_each(
    files: PackageFiles, into: Path, paths: Iterable[str], put: Callable[[str, str], None]
) -> None:
    for path in paths:
        with suppress(FileNotFoundError):  # it was removed from the machine
            put(files.machine_path(path), f"{into}{path}")


def _folder(source: str, place: str) -> None:
    """The same folder, empty."""
    os.mkdir(place)
    status = os.stat(source)
    os.chown(place, status.st_uid, status.st_gid)
    os.chmod(place, stat.S_IMODE(status.st_mode))


def _link(source: str, place: str) -> None:
    """The same file; a copy if the machine's file is on another file system."""
    try:
        os.link(source, place, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        _copy(source, place)


def _copy(source: str, place: str) -> None:
    """A new file, because an existing one may be a file of the machine."""
    if os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, "it would be written over", place)
    status = os.lstat(source)
    shutil.copyfile(source, place, follow_symlinks=False)
    os.chown(place, status.st_uid, status.st_gid, follow_symlinks=False)
    shutil.copystat(source, place, follow_symlinks=False)
