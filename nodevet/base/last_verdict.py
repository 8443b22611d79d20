"""The last pass of `nodevet check @local --max-age TIME`, printed again while nothing has changed.

A scheduler asks every minute, so nodevet imports this module first, and it imports next to nothing.
It keeps only a pass. A pass answers only the same command line of the same user in the same boot
and on the same day, while every file that it depends on is unchanged. In any doubt, such as after
a clock was set, nodevet checks the machine.
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
MOST_RECORDS = 64  # in a folder, one for each command line
FORGET_MARK = "forgotten"  # a file: passes that began before its time do not count
ENVIRONMENT = ("COLUMNS", "FORCE_COLOR", "HOME", "LANG", "NO_COLOR", "PATH", "TERM", "TZ")
PREFIXES = ("LC_", "LD_", "NODEVET_", "PYTHON")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINE_ID = "/etc/machine-id"
ABSENT = b"absent"


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a kept pass may answer this command line."""
    return "@local" in arguments and any(word.startswith("--max-age") for word in arguments)


def recall(arguments: Sequence[str]) -> bytes | None:
    """What to print if the last pass still holds; the exit code is 0. None: check the machine."""
    try:
        return _recall(arguments)
    except Exception:  # any error is a doubt
        return None


def remember(
    arguments: Sequence[str],
    text: bytes,
    files: Iterable[str],
    *,
    max_age: float,
    began: tuple[float, float],
    show_age: bool,
) -> bool:
    """Keep a pass for `max_age` seconds from when it `began`, see `clocks`.

    `files`: the absolute paths that it depends on; a folder stands for its names, and a path may be
    absent. `show_age`: whether its age may be added to the last line. Returns False if nothing was
    kept, because a file may have changed while it was read or `forget` was called. Raises OSError.
    """
    from pathlib import Path

    from nodevet.base.files import write_whole

    entries = []
    for path in files:
        identity, changed = identity_of(path)
        if changed > began[0] - STEP or "\0" in path:
            return False
        entries += [os.fsencode(path), identity]
    listing = b"\0".join(entries)
    key = _key(arguments, began[0])
    sizes = (len(key), len(listing), len(text))
    head = b"%s %d %d %d %d %r %r %r\n" % (FORM, *sizes, show_age, max_age, *began)
    folder = prepare()
    if identity_of(f"{folder}/{FORGET_MARK}")[1] > began[0] - STEP:
        return False
    _limit_records(folder)
    record = head + key + listing + text
    write_whole(Path(_path(folder, key)), record, durable=False, mode=0o600)
    return True


def prepare() -> str:
    """Create and return the folder of records. It must exist before a check begins, so that
    `forget` can leave its mark. Raises OSError and LookupError."""
    folder = records_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    check_folder(folder)
    return folder


def forget() -> None:
    """Remove this user's records, and make running checks keep nothing: the machine failed a check,
    or is about to be changed."""
    with suppress(OSError, LookupError):
        folder = records_folder()
        _remove_records(folder)
        mark = f"{folder}/{FORGET_MARK}"
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        os.utime(mark)
        _remove_records(folder)  # those kept meanwhile


def _remove_records(folder: str) -> None:
    for name in os.listdir(folder):
        if name != FORGET_MARK:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")


def clocks() -> tuple[float, float]:
    """Seconds since 1970 UTC, and since boot, suspension included."""
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


def _recall(arguments: Sequence[str]) -> bytes | None:
    key = _key(arguments)
    folder = records_folder()
    check_folder(folder)
    head, _, rest = read_own(_path(folder, key)).partition(b"\n")
    if not head.startswith(FORM + b" "):
        return None
    key_size, listing_size, size, show_age, max_age, wall, boot = head[len(FORM) :].split()
    sizes = (int(key_size), int(listing_size), int(size))
    if min(sizes) < 0 or not float(max_age) < LONGEST:
        return None
    end = sizes[0] + sizes[1]
    now = clocks()
    since = (now[0] - float(wall), now[1] - float(boot))
    if rest[: sizes[0]] != key or not min(since) >= 0 or not abs(since[0] - since[1]) <= STEP:
        return None
    if not max(since) < float(max_age):
        return None
    listing = rest[sizes[0] : end].split(b"\0")
    for path, identity in zip(listing[::2], listing[1::2], strict=True):
        if identity_of(os.fsdecode(path))[0] != identity:
            return None
    text = rest[end:]
    if len(text) != sizes[2]:
        return None
    if int(show_age) and text:
        return text.rstrip(b"\n") + f" · verdict of {_ago(max(since))} ago\n".encode()
    return text


def _key(arguments: Sequence[str], at: float | None = None) -> bytes:
    """Everything that a verdict depends on besides files, on the day of `at` in seconds since 1970,
    by default today: waivers end at midnight, maybe during the check."""
    terminal = "x".join(map(str, os.get_terminal_size(1))) if os.isatty(1) else "-"
    variables = sorted(
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
        time.strftime("%Y-%m-%d", time.localtime(at)),
        terminal,
        *variables,
        "",
        *arguments,
    )
    return b"\0".join(map(os.fsencode, parts))


def _line(path: str) -> str:
    """A file's text. Raises OSError, and ValueError if it is empty."""
    text = _read(path).strip().decode("ascii")
    if not text:
        raise ValueError(path)
    return text


def records_folder() -> str:
    """Raises LookupError if the user has none."""
    return state_of_user() + "/verdicts"


def state_of_user() -> str:
    """Where nodevet keeps what checks of this machine leave. Raises LookupError if the user has no
    home.

    Not /var/lib/nodevet for root: there it belongs to the user nodevet, whom root does not believe.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = "/var/cache" if os.geteuid() == 0 else os.environ["HOME"] + "/.local/state"
    if not state.startswith("/"):
        raise LookupError("no home")
    return state + "/nodevet"


def _path(folder: str, key: bytes) -> str:
    from zlib import crc32  # where it lies; the whole key is in the record

    return f"{folder}/{crc32(key):08x}"


def read_own(path: str) -> bytes:
    """The content of a file of this user that nobody else may read or write. Raises OSError, and
    ValueError if it is too large."""
    return _read(path, own=True)


def _read(path: str, *, own: bool = False) -> bytes:
    link = os.O_NOFOLLOW if own else 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | link)
    try:
        if own:
            _check_own(os.fstat(descriptor), 0o077)
        data = b""
        while chunk := os.read(descriptor, CHUNK):
            data += chunk
            if len(data) > LARGEST:
                raise ValueError(path)
        return data
    finally:
        os.close(descriptor)


def check_folder(folder: str) -> None:
    """Raises PermissionError if another user may change what the folder holds. nodevet.base.trust
    is more lenient and takes longer to import than this whole module."""
    _check_own(os.stat(folder), 0o022)
    check_above(folder)


def check_above(place: str) -> None:
    """Raises PermissionError if another user may replace what lies at an absolute path, OSError if
    a folder above it cannot be read."""
    for path in {*_above(place), *_above(os.path.realpath(place))}:
        for status in (os.lstat(path), os.stat(path)):
            writable = status.st_mode & 0o022 and stat.S_ISDIR(status.st_mode)
            if status.st_uid not in (0, os.geteuid()) or (writable and not _is_sticky(status)):
                raise PermissionError(f"other users may change {path}")


def _above(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _is_sticky(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_ISVTX)


def _check_own(status: os.stat_result, others: int) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & others:
        raise PermissionError("not this user's own")


def identity_of(path: str) -> tuple[bytes, float]:
    """A file's identity (device, inode, mode, size, times), and when it last changed, in seconds
    since 1970. Raises OSError."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, 0.0
    values = (status.st_dev, status.st_ino, status.st_mode, status.st_size)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return b"%d %d %d %d %d %d" % (*values, *times), max(times) / 1e9


def _limit_records(folder: str) -> None:
    """Keep command lines that change each time from filling the folder."""
    if len(os.listdir(folder)) >= MOST_RECORDS:
        _remove_records(folder)


def _ago(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
