"""Files that a user named for a run to write: checked before the run, and never half written."""

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nodevet.base.files import MODE, is_named_pipe, write_whole

PATIENCE = 10.0  # seconds until a process must have opened a pipe to read it
GLANCE = 0.05  # seconds between two looks at it


class FileError(Exception):
    """A file that cannot be written; the message names it and says why."""


def try_out(path: Path) -> None:
    """Raises FileError if `replace` could not write the file; does not change it."""
    if not path.parent.is_dir():
        raise FileError(f"{path}: the folder {path.parent} does not exist")
    if kind := _unwritable_kind(path):
        raise FileError(f"{path}: cannot be written: it is {kind}")
    with file_errors(path):
        if _in_place(path):
            if not os.access(path, os.W_OK):
                raise PermissionError("permission denied")
        else:
            part = path.resolve().with_name(f".nodevet-{os.urandom(8).hex()}.part")
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            part.unlink()


def try_out_regular(path: Path) -> None:
    """Like `try_out`, for a file that is written several times or read later, which no named pipe
    can be."""
    if is_named_pipe(path):
        raise FileError(f"{path}: cannot be written: it is a named pipe, not a regular file")
    try_out(path)


def _unwritable_kind(path: Path) -> str:
    """What `path` is if nodevet never writes to it: a folder, a socket, a block device; else ""."""
    if path.is_dir():
        return "a folder"
    if path.is_socket():
        return "a socket"
    return "a block device" if path.is_block_device() else ""


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a FileError about this path."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def replace(path: Path, text: str | Iterable[str]) -> None:
    """Like `replace_data`, for text; writes pieces as they come."""
    pieces = (text,) if isinstance(text, str) else text
    replace_data(path, (piece.encode("utf-8", "backslashreplace") for piece in pieces))


def replace_data(path: Path, data: bytes | Iterable[bytes], mode: int = MODE) -> None:
    """Write a file in one step, so that a reader never sees half of it. Raises OSError.

    A device or a pipe is written to, never replaced. Of a link, the target is replaced.
    """
    if _in_place(path):
        with _open_in_place(path) as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
    else:
        write_whole(path.resolve(), data, durable=True, mode=mode)


def _in_place(path: Path) -> bool:
    return path.exists() and not path.is_file()


def open_to_append(path: Path) -> BinaryIO:
    """A file, a device or a pipe, opened to append lines. Raises OSError."""
    if _in_place(path):
        return _open_in_place(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, MODE), "ab")


def _open_in_place(path: Path) -> BinaryIO:
    """A device or a pipe, opened to write. Raises OSError, also if no process reads the pipe."""
    if not path.is_fifo():
        return path.open("wb")
    end = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "no process reads this pipe") from error
        time.sleep(GLANCE)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")
