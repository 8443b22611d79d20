"""The folder of a site. nodevet replaces whole files, and only if they differ, so others may read
the folder meanwhile."""

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nodevet.base import typed
from nodevet.base.errors import UserError
from nodevet.base.files import open_regular, write_whole
from nodevet.base.trust import distrust

MANIFEST = ".nodevet-site.json"
LOCK = ".nodevet-site.lock"
INSIDE = ("hosts", "parts", "runs", "checks", "data")
OURS = re.compile(
    r"(index|runs|hosts(-\d+)?)\.html|site-[0-9a-f]{12}\.(css|js)|\.nodevet-\w+\.part"
)
"""The files in the site's own folder that nodevet writes, and so may delete."""
MOST_BYTES = 1 << 30  # of the manifest
PATIENCE = 300  # seconds for another process that writes the same site


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The written pages. `of`: identifies the store and the program; `pages`: path -> a mark that
    changes with the page, and the size in bytes; `parts`: host -> its parts that have pages."""

    of: str = ""
    pages: Mapping[str, tuple[str, int]] = {}
    parts: Mapping[str, tuple[str, ...]] = {}


class SiteFolder:
    """Writes the files of a site. `before`: the manifest of the previous time."""

    def __init__(self, folder: Path, before: Manifest) -> None:
        self.folder = folder
        self.before = before
        self.pages: dict[str, tuple[str, int]] = {}
        self.written = 0
        self.removed = 0

    def has_page(self, path: str, mark: str) -> bool:
        """Whether the folder has the page with this mark; if so, `finish` keeps it."""
        known = self.before.pages.get(path)
        if known is None or known[0] != mark:
            return False
        try:
            size = (self.folder / path).lstat().st_size
        except FileNotFoundError:
            return False
        if size == known[1]:
            self.pages[path] = known
        return size == known[1]

    def write(self, path: str, text: str, mark: str = "") -> None:
        """Replace the file in one step, unless it is the same. Raises OSError."""
        data = text.encode("utf-8", "backslashreplace")
        self.pages[path] = (mark, len(data))
        file = self.folder / path
        if _content(file, len(data)) != data:
            write_whole(file, data, durable=False)
            self.written += 1

    def finish(self, of: str, parts: Mapping[str, tuple[str, ...]]) -> None:
        """Delete files that no longer belong to the site; write the manifest. Raises OSError."""
        for inside in ("", *INSIDE):
            for entry in os.scandir(self.folder / inside):
                path = os.path.join(inside, entry.name)  # noqa: PTH118 - joins two texts
                is_ours = bool(inside) or OURS.fullmatch(entry.name)
                if is_ours and path not in self.pages and not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry)  # noqa: PTH108 - it is no Path
                    self.removed += 1
        data = msgspec.json.encode(Manifest(of=of, pages=self.pages, parts=parts))
        write_whole(self.folder / MANIFEST, data, durable=False)


def _content(file: Path, size: int) -> bytes | None:
    """The content of a regular file of this size; None if there is no such file."""
    try:
        if file.is_symlink() or file.lstat().st_size != size:
            return None
        with open_regular(file) as opened:
            return opened.read(size + 1)
    except OSError:
        return None


@contextmanager
def site_folder(folder: Path) -> Iterator[SiteFolder]:
    """Lock the folder of a site for this process; create it if needed. Raises OSError, and
    UserError if others may change the folder, or if it has files but is not a site."""
    folder.mkdir(exist_ok=True)
    if why := distrust(folder, must_exist=True):
        raise UserError(f"site: {why}: correct that, or name another folder")
    if any(folder.iterdir()) and not (folder / LOCK).exists():  # a writer begins with the lock
        raise UserError(f"{folder} has files, but no site: name an empty folder")
    with _lock_site(folder):
        for inside in INSIDE:
            if (folder / inside).is_symlink():
                raise UserError(f"{folder / inside} is a symbolic link: remove it")
            (folder / inside).mkdir(exist_ok=True)
        yield SiteFolder(folder, _manifest(folder / MANIFEST))


def _manifest(file: Path) -> Manifest:
    """The manifest. If it is unreadable, an empty one, so nodevet writes every page again."""
    try:
        with open_regular(file) as opened:
            return typed.decode(opened.read(MOST_BYTES), Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return Manifest()


@contextmanager
def _lock_site(folder: Path) -> Iterator[None]:
    """Raises UserError if another process writes the site for PATIENCE seconds."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(
        folder / LOCK, flags, 0o600
    )  # a user who cannot open it cannot hold the lock
    try:
        end = time.monotonic() + PATIENCE
        while not _try_lock(descriptor):
            if time.monotonic() > end:
                raise UserError(f"{folder}: another process writes this site; try again later")
            time.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
