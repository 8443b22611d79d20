"""Contents of files that fixes change, each kept once in a folder, named by its SHA-256.

They may be secret: the folder is 0700 and each file 0600 from the start, whatever the umask. A
content is on the disk before `put` returns, and so before a record that names it.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from nodevet.base.files import sync_folder, write_whole

CONTENTS = "contents"
LARGEST = 1 << 20  # bytes: nodevet.remote.state reads no larger file
NAME = re.compile(r"[0-9a-f]{64}")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ContentError(Exception):
    """A file's content cannot be stored or read, or was changed; the message says where and why."""


class ContentStore:
    """A folder of contents. Every method may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._put: set[str] = set()

    def put(self, content: bytes) -> str:
        """Keep a content; returns its SHA-256. Raises ContentError."""
        name = hashlib.sha256(content).hexdigest()
        if name not in self._put:
            try:
                self._write(name, content)
            except OSError as error:
                raise ContentError(
                    f"{self.folder / name}: cannot be written: {error.strerror}"
                ) from error
            self._put.add(name)
        return name

    def get(self, name: str) -> bytes:
        """The content of this SHA-256. Raises ContentError if it is missing or changed."""
        path = self.folder / name
        if not NAME.fullmatch(name):
            raise ContentError(f"{name!r} is not a valid SHA-256 of a content")
        try:
            descriptor = os.open(path, _OPEN)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise ContentError(
                f"{path}: the saved content of a file cannot be read: {error.strerror}"
            ) from error
        if hashlib.sha256(content).hexdigest() != name:
            raise ContentError(f"{path}: was changed since it was saved: its SHA-256 differs")
        return content

    def find(self, name: str) -> bytes | None:
        """The content of this SHA-256; None if it is missing or changed."""
        with suppress(ContentError):
            return self.get(name)
        return None

    def check(self, names: Collection[str]) -> None:
        """Raises ContentError if one of these is missing or changed."""
        for name in names:
            self.get(name)

    def hold(self, contents: Mapping[str, bytes]) -> None:
        """Keep these, and delete all others. Raises ContentError."""
        for content in contents.values():
            self.put(content)
        try:
            if self.folder.is_dir() and not self.folder.is_symlink():
                for path in self.folder.iterdir():
                    if NAME.fullmatch(path.name) and path.name not in contents:
                        path.unlink()
        except OSError as error:
            raise ContentError(f"{self.folder}: cannot be cleaned up: {error.strerror}") from error

    def _write(self, name: str, content: bytes) -> None:
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            if self.folder.is_symlink():
                raise
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)
        sync_folder(self.folder.parent)
        if self.find(name) is None:
            write_whole(self.folder / name, content, durable=True, mode=0o600)
        sync_folder(self.folder)


def contents_beside(plan: Path) -> ContentStore:
    """The contents of files when a plan was made, for its diff."""
    return ContentStore(plan.with_name(f"{plan.name}.{CONTENTS}"))
