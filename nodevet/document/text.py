"""Read a file as text for the YAML parser."""

import os
import re
import stat
from pathlib import Path

import msgspec

from nodevet.base.problems import Place, Problem
from nodevet.remote.digest import sha256

MAX_BYTES = 1 << 20

BOMS = ((b"\xef\xbb\xbf", "UTF-8"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"  # U+0085 among them
)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file's text. `shown`: its name in messages."""

    path: Path
    shown: str
    text: str
    sha256: str


class UnreadableError(Exception):
    """The file is not text; the argument is the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def display_path(path: Path) -> str:
    """The path relative to the current folder if it is below it, else the absolute path. Symbolic
    links are not followed, except before a `..`, which goes up from their target."""
    if ".." in path.parts:
        path = path.parent.resolve() / path.name
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  (it would follow symbolic links)
    folder = Path.cwd()
    return str(absolute.relative_to(folder)) if absolute.is_relative_to(folder) else str(absolute)


def read(path: Path) -> Source:
    """The text of a regular file of at most `MAX_BYTES`. Raises UnreadableError."""
    name = display_path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _refuse(name, "is not a regular file", "name a YAML file")
        if status.st_size > MAX_BYTES:
            raise _refuse(
                name,
                f"holds {status.st_size:,} bytes; the limit is {MAX_BYTES:,}",
                "is this the right file?",
            )
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refuse(name, f"cannot be read: {reason}", "check the path and its mode") from error
    if len(data) > MAX_BYTES:
        raise _refuse(name, f"holds more than {MAX_BYTES:,} bytes", "is this the right file?")
    return Source(path=path, shown=name, text=decode(data, name), sha256=digest(data))


def digest(data: bytes) -> str:
    return str(sha256(data).hexdigest())


def decode(data: bytes, name: str) -> str:
    """UTF-8 without a byte order mark and without control characters. Raises UnreadableError."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            advice = "save it as UTF-8 without a byte order mark"
            raise _refuse(name, f"begins with a {encoding} byte order mark", advice, Place(1, 1))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise _refuse(
            name,
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            "save the file as UTF-8",
            _place(before),
        ) from error
    match = FORBIDDEN.search(text)
    if match:
        char = "a NUL byte" if match[0] == "\0" else f"the character U+{ord(match[0]):04X}"
        raise _refuse(
            name,
            f"{char} is not allowed here",
            'remove it; in double quotes it may be written as an escape, such as "\\t"',
            _place(text[: match.start()]),
        )
    return text


def _place(before: str) -> Place:
    """The position just after `before`, with lines as YAML and editors count them."""
    lines = re.split("\r\n|\r|\n", before)
    return Place(len(lines), len(lines[-1]) + 1)


def _refuse(name: str, message: str, advice: str, place: Place | None = None) -> UnreadableError:
    at = place or Place()
    return UnreadableError(Problem(at.within(name), "", message, advice))
