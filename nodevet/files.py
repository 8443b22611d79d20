"""Writing a file whole: who reads it sees what it was or what it is now, never half of either."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

MODE = 0o644  # less the umask: not writable by others, even if the umask is 0


def write_whole(path: Path, data: bytes, *, durable: bool) -> None:
    """Write a temporary file in the same folder, and rename it to `path`; a link is replaced.

    `durable`: after a power cut too, `path` has the new content once this returns. Raises OSError;
    `path` is then as it was, unless only the sync of its folder failed. The temporary file is
    removed on every failure; a process that is killed leaves it: `.nodevet-*.part`.
    """
    part = path.with_name(f".nodevet-{secrets.token_hex(8)}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, MODE), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """As far as can be: not every file system can, nor may every writer read the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
