"""A lock for one sweep of an inventory at a time; it ends with its process and says who holds
it.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.base.files import state_folder
from nodevet.base.printable import brief
from nodevet.base.trust import distrust

HELD = 75  # exit code: another one runs; sysexits.h's EX_TEMPFAIL


class HeldError(Exception):
    """The inventory is being swept; the message says by whom, and since when."""


@contextmanager
def locked(names: Sequence[str], what: str) -> Iterator[None]:
    """Hold the lock of each of these, in an order that is always the same. Raises HeldError, and
    UserError if a lock cannot be written, or if other users may decide what it holds."""
    folder = state_folder() / "locks"
    _check_owner(folder)
    with _lock_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        for name in sorted(set(names)):
            stack.enter_context(_hold_lock(folder, name, what))
        yield


def _check_owner(path: Path) -> None:
    """Raises UserError if other users may write the lock or its folder."""
    if why := distrust(path):
        raise UserError(f"sweep lock: {why}: correct that, or skip the lock with --no-lock")


@contextmanager
def _lock_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a UserError about this path."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"sweep lock: {path}: {error.strerror}: correct that, or skip the lock with --no-lock"
        ) from error


@contextmanager
def _hold_lock(folder: Path, name: str, what: str) -> Iterator[None]:
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"
    _check_owner(path)
    with _lock_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 1000, 0).decode("utf-8", "replace").strip()
            by = brief(holder, 300) or "another process"
            raise HeldError(f"{name} is being swept by {by}") from error
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        with suppress(OSError):  # on a full disk the lock holds without a name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"`{what}`, process {os.getpid()}, since {now}".encode(), 0)
        yield
    finally:
        os.close(descriptor)
