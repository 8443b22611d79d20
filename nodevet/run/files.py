"""Files that a user named for a run to write: tried out before it, and never half written."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodevet.files import MODE, write_whole


class FileError(Exception):
    """A file that cannot be written; the message names it and says why."""


def try_out(path: Path) -> None:
    """Raises FileError if `replace` could not write the file; leaves it as it is."""
    if not path.parent.is_dir():
        raise FileError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise FileError(f"{path}: cannot be written: it is a folder")
    with tried(path):
        if _in_place(path):
            if not os.access(path, os.W_OK):
                raise PermissionError("permission denied")
        else:
            folder = path.resolve().parent
            from tempfile import NamedTemporaryFile  # a run that prints does not pay for it

            with NamedTemporaryFile(dir=folder, prefix=".nodevet-", suffix=".part"):
                pass


@contextmanager
def tried(path: Path) -> Iterator[None]:
    """An OSError within as a FileError of this path."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error


def replace(path: Path, text: str | Iterable[str]) -> None:
    """See `replace_data`. A text in pieces is written as they come."""
    pieces = (text,) if isinstance(text, str) else text
    replace_data(path, (piece.encode("utf-8", "backslashreplace") for piece in pieces))


def replace_data(path: Path, data: bytes | Iterable[bytes], mode: int = MODE) -> None:
    """Write a file in one step, so that a reader never sees half of it. Raises OSError.

    A device or a pipe is written to, never replaced; of a link, the file that it leads to.
    """
    if _in_place(path):
        with path.open("wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
    else:
        write_whole(path.resolve(), data, durable=True, mode=mode)


def _in_place(path: Path) -> bool:
    return path.exists() and not path.is_file()
