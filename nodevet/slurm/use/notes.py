"""Notes that the hooks of a node write for its next health check. They hold until a reboot."""

import os
import time
from contextlib import suppress
from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.base.files import open_regular, write_whole
from nodevet.base.last_verdict import BOOT_ID
from nodevet.base.trust import distrust
from nodevet.slurm import kept

PROLOG = "prolog"  # the reason of a failed prolog
EPILOG = "epilog"  # when the job began whose epilog found a fault
LONGEST = 1000  # bytes
LONGEST_JOB = 30 * 86400.0  # seconds; older notes of jobs are removed


def read(name: str) -> str:
    """A note of this boot; "" if there is none."""
    with suppress(OSError, UnicodeDecodeError), open_regular(_path(name)) as file:
        boot, _, text = file.read(LONGEST).decode().partition("\n")
        return text.strip() if boot == _boot() else ""
    return ""


def write(name: str, text: str) -> str:
    """Write a note. Returns the end of a message: why that failed, or ""."""
    try:
        _path(name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = _path(name)  # others may have made the folder meanwhile
        write_whole(path, f"{_boot()}\n{text}\n".encode(), durable=False, mode=0o600)
    except (OSError, UserError) as error:
        return f"; not noted for the next health check: {error}"
    return ""


def remove(*names: str) -> None:
    """Remove notes; one on a read-only disk stays."""
    for name in names:
        with suppress(OSError):
            _path(name).unlink(missing_ok=True)


def job_began() -> float | None:
    """When the job of this epilog began, in seconds since 1970; removes its note. None if there is
    no note."""
    given = os.environ.get("SLURM_JOB_START_TIME", "")  # not from Slurm 22.05
    if given.isascii() and given.isdigit():
        return float(given)
    path = _path(f"job-{kept.job()}")
    try:
        with open_regular(path) as file:
            text = file.read(LONGEST).decode("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    _remove_old_jobs(path)
    return float(text) if text.isdigit() else None


def _remove_old_jobs(path: Path) -> None:
    """Remove the note of an ended job, and old notes of jobs that had no epilog."""
    for other in path.parent.glob("job-*"):
        with suppress(FileNotFoundError):
            if other == path or time.time() - other.stat().st_mtime > LONGEST_JOB:
                other.unlink()


def _path(name: str) -> Path:
    """Raises UserError if other users may write notes."""
    try:
        path = Path(kept.notes(), name)
    except LookupError as error:
        raise UserError(f"no folder for notes: {error}") from error
    if why := distrust(path):
        raise UserError(f"{why}, so nodevet keeps no notes there")
    return path


def _boot() -> str:
    return Path(BOOT_ID).read_text(encoding="ascii").strip()
