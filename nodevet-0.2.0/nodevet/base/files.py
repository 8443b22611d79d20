"""Write a file atomically, so that a reader sees its old or its new content; and read a file only
if it is regular, so that it neither blocks nor is endless."""

import errno
import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

NULL = os.makedev(1, 3)  # /dev/null
MODE = 0o644  # less the umask: not writable by others, even if the umask is 0


def write_whole(
    path: Path, data: bytes | Iterable[bytes], *, durable: bool, mode: int = MODE
) -> None:
    """Write a temporary file in the same folder and rename it to `path`; a link is replaced.
    Pieces are written as they come.

    `durable`: once this returns, the new content survives a power cut. Raises OSError; `path` is
    then unchanged, unless only the sync of its folder failed. Every failure removes the temporary
    file; a killed process leaves it: `.nodevet-*.part`.
    """
    part = path.with_name(f".nodevet-{os.urandom(8).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, mode), "wb") as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if durable:
        _sync_if_possible(path.parent)


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened to read. Raises OSError, also for a pipe, a socket or a device."""
    if stat.S_ISREG(path.stat().st_mode):  # to open a device may already do something
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file")


def open_input(path: Path) -> BinaryIO:
    """A file that a user named, the pipe of a shell's `<(COMMAND)`, or /dev/null, opened to read.

    Raises OSError, also for another device or a named pipe, which may never end.
    """
    is_shell_pipe = path.is_fifo() and not is_named_pipe(path)
    return path.open("rb") if is_shell_pipe or _is_null(path) else open_regular(path)


def read_input(path: Path, limit: int = -1) -> bytes:
    """At most `limit` bytes of what `open_input` opens. Raises OSError."""
    with open_input(path) as file:
        return file.read(limit)


def home_folder() -> Path:
    """The user's home folder. Raises OSError if this user has none, as in some containers."""
    home = os.environ.get("HOME") or _home_of_account()
    if not home.startswith("/"):
        raise OSError(errno.ENOENT, "this user has no home folder: set HOME to an absolute path")
    return Path(home)


def state_folder() -> Path:
    """Where nodevet keeps this user's state ($XDG_STATE_HOME/nodevet). Raises OSError."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home_folder() / ".local" / "state"
    return base / "nodevet"


def _home_of_account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def is_named_pipe(path: Path) -> bool:
    """Whether mkfifo made this pipe; a shell's pipes have no name."""
    return path.is_fifo() and path.resolve().exists()


def _is_null(path: Path) -> bool:
    status = path.stat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == NULL


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_possible(folder: Path) -> None:
    """Some file systems cannot sync a folder, and some writers may not read it."""
    try:
        sync_folder(folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise
