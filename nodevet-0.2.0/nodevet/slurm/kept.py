"""Answers `nodevet slurm health` and `prolog` from a kept pass. Imports next to nothing: Slurm asks
before every job.

Both share one pass if their options are alike. Notes of one node lie beside the kept passes: when a
job began, and what a prolog or an epilog leaves for the next health check.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from nodevet.base import last_verdict

FOLDER = "slurm"
MOST_DIGITS = 20


def answer(arguments: Sequence[str]) -> bytes | None:
    """What to print if a kept pass still holds, with exit code 0. None: run the command."""
    hook = arguments[1:2]
    if hook == ["prolog"]:
        note_job()
    if hook in (["prolog"], ["health"]):
        return last_verdict.recall(shared_words(arguments))
    return None


def shared_words(arguments: Sequence[str]) -> list[str]:
    """The words that a pass is kept for."""
    return ["slurm", *arguments[2:]]


def notes() -> str:
    """The folder of notes. Raises LookupError if the user has none."""
    return f"{last_verdict.records_folder().rpartition('/')[0]}/{FOLDER}"


def job() -> str:
    """The job that a prolog or an epilog is run for; "" outside of one."""
    number = os.environ.get("SLURM_JOB_ID", "")
    return number if number.isascii() and number.isdigit() and len(number) < MOST_DIGITS else ""


def note_job() -> None:
    """Note that the job begins now; without the note, its epilog looks at less."""
    if number := job():
        with suppress(OSError, LookupError):
            folder = notes()
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 (pathlib takes longer)
            last_verdict.check_folder(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            note = os.open(f"{folder}/job-{number}", flags, 0o600)
            os.write(note, b"%d" % time.time())
            os.close(note)
