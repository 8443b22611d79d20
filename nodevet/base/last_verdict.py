"""The last pass of `nodevet check @local --max-age TIME`, given again while nothing has changed.

A scheduler asks every minute, so this is asked before anything else is imported, and imports next
to nothing itself. Only a pass is kept. It is the answer to the same command line alone, of the same
user, in the same boot and on the same day, while every file that it depends on is as it was. Any
doubt, a clock that was set among them, is no answer: the machine is then checked.
"""

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from nodevet import __version__

FORM = b"nodevet-verdict 1"
LARGEST = 1 << 22  # bytes of a record
CHUNK = 1 << 16
LONGEST = 10 * 365 * 86400.0  # seconds that a pass may be kept
STEP = 2.0  # seconds that two clocks may drift apart, and that a file's times may be off
KEPT = 64  # records in a folder, of as many command lines
FORGOTTEN = "forgotten"  # its time is when no earlier pass counted any more
ENVIRONMENT = ("COLUMNS", "FORCE_COLOR", "HOME", "LANG", "NO_COLOR", "PATH", "TERM", "TZ")
PREFIXES = ("LC_", "LD_", "NODEVET_", "PYTHON")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINE_ID = "/etc/machine-id"


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a command line may be answered by what is kept."""
    return "@local" in arguments and any(word.startswith("--max-age") for word in arguments)


def recall(arguments: Sequence[str]) -> bytes | None:
    """What to print if the last pass still holds; the exit code is 0. None: check the machine."""
    try:
        return _recall(arguments)
    except Exception:  # whatever it is, it is a doubt
        return None


def remember(
    arguments: Sequence[str],
    text: bytes,
    files: Iterable[str],
    *,
    most: float,
    began: tuple[float, float],
    dated: bool,
) -> bool:
    """Keep a pass for `most` seconds from when it `began`, see `clocks`.

    `files`: the absolute paths that it depends on, folders for what is in them, and such as do not
    exist. `dated`: whether its age may be added to the last line. False if nothing was kept, for a
    file may have changed while it was read, or `forget` was called since. Raises OSError.
    """
    from pathlib import Path

    from nodevet.base.files import write_whole

    known = []
    for path in files:
        identity, changed = _identity(path)
        if changed > began[0] - STEP or "\0" in path:
            return False
        known += [os.fsencode(path), identity]
    listed = b"\0".join(known)
    key = _key(arguments)
    sizes = (len(key), len(listed), len(text))
    head = b"%s %d %d %d %d %r %r %r\n" % (FORM, *sizes, dated, most, *began)
    folder = prepare()
    if _identity(f"{folder}/{FORGOTTEN}")[1] > began[0] - STEP:
        return False
    _make_room(folder)
    record = head + key + listed + text
    write_whole(Path(_path(folder, key)), record, durable=False, mode=0o600)
    return True


def prepare() -> str:
    """The folder of what is kept; there before a check begins, `forget` leaves its mark in it.
    Raises OSError, and LookupError."""
    folder = _folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _check_folder(folder)
    return folder


def forget() -> None:
    """Remove what is kept for this user, and keep nothing of a check that has begun: the machine
    was seen to fail, or is to be changed."""
    with suppress(OSError, LookupError):
        folder = _folder()
        _empty(folder)
        mark = f"{folder}/{FORGOTTEN}"
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        os.utime(mark)
        _empty(folder)  # what was kept meanwhile


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        if name != FORGOTTEN:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")


def clocks() -> tuple[float, float]:
    """Seconds since 1970 UTC, and since boot, suspension included."""
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


def _recall(arguments: Sequence[str]) -> bytes | None:
    key = _key(arguments)
    folder = _folder()
    _check_folder(folder)
    head, _, rest = _read(_path(folder, key)).partition(b"\n")
    if not head.startswith(FORM + b" "):
        return None
    key_size, listed_size, size, dated, most, wall, boot = head[len(FORM) :].split()
    sizes = (int(key_size), int(listed_size), int(size))
    if min(sizes) < 0 or not float(most) < LONGEST:
        return None
    end = sizes[0] + sizes[1]
    now = clocks()
    since = (now[0] - float(wall), now[1] - float(boot))
    if rest[: sizes[0]] != key or not min(since) >= 0 or not abs(since[0] - since[1]) <= STEP:
        return None
    if not max(since) < float(most):
        return None
    listed = rest[sizes[0] : end].split(b"\0")
    for path, identity in zip(listed[::2], listed[1::2], strict=True):
        if _identity(os.fsdecode(path))[0] != identity:
            return None
    text = rest[end:]
    if len(text) != sizes[2]:
        return None
    if int(dated) and text:
        return text.rstrip(b"\n") + f" · verdict of {_ago(max(since))} ago\n".encode()
    return text


def _key(arguments: Sequence[str]) -> bytes:
    """All that a verdict depends on beyond files."""
    shown = "x".join(map(str, os.get_terminal_size(1))) if os.isatty(1) else "-"
    given = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if name in ENVIRONMENT or name.startswith(PREFIXES)
    )
    parts = (
        __version__,
        sys.executable,
        sys.version,
        str(os.geteuid()),
        os.getcwd(),
        os.uname().nodename,
        _line(BOOT_ID),
        _line(MACHINE_ID),
        time.strftime("%Y-%m-%d"),
        shown,
        *given,
        "",
        *arguments,
    )
    return b"\0".join(map(os.fsencode, parts))


def _line(path: str) -> str:
    """Raises OSError, and ValueError for one that says nothing: there is no telling then."""
    text = _read(path, whose=0).strip().decode("ascii")
    if not text:
        raise ValueError(path)
    return text


def _folder() -> str:
    """Raises LookupError if the user has none."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = "/var/lib" if os.geteuid() == 0 else os.environ["HOME"] + "/.local/state"
    if not state.startswith("/"):
        raise LookupError("no home")
    return state + "/nodevet/verdicts"


def _path(folder: str, key: bytes) -> str:
    from zlib import crc32  # where it lies; the whole key is in the record

    return f"{folder}/{crc32(key):08x}"


def _read(path: str, whose: int | None = None) -> bytes:
    """A file that only this user may have written; with `whose` it is not asked who may have."""
    link = os.O_NOFOLLOW if whose is None else 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | link)
    try:
        if whose is None:
            _check_own(os.fstat(descriptor), 0o077)
        data = b""
        while chunk := os.read(descriptor, CHUNK):
            data += chunk
            if len(data) > LARGEST:
                raise ValueError(path)
        return data
    finally:
        os.close(descriptor)


def _check_folder(folder: str) -> None:
    """Raises PermissionError if another user may decide what is in it. See nodevet.base.trust,
    which is more lenient and takes longer to import than all of this."""
    _check_own(os.stat(folder), 0o022)
    for path in {*_above(folder), *_above(os.path.realpath(folder))}:
        for found in (os.lstat(path), os.stat(path)):
            writable = found.st_mode & 0o022 and stat.S_ISDIR(found.st_mode)
            if found.st_uid not in (0, os.geteuid()) or (writable and not _is_sticky(found)):
                raise PermissionError(f"other users may change {path}")


def _above(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _is_sticky(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_ISVTX)


def _check_own(status: os.stat_result, others: int) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & others:
        raise PermissionError("not this user's own")


def _identity(path: str) -> tuple[bytes, float]:
    """What a file is now, and when it last changed, seconds since 1970. Raises OSError."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return b"absent", 0.0
    values = (found.st_dev, found.st_ino, found.st_mode, found.st_size)
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return b"%d %d %d %d %d %d" % (*values, *times), max(times) / 1e9


def _make_room(folder: str) -> None:
    """So that command lines that change each time do not fill it."""
    if len(os.listdir(folder)) >= KEPT:
        _empty(folder)


def _ago(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
