"""Answers `nodevet slurm health` and `prolog` from a kept pass. Imports next to nothing: Slurm asks
before every job.

Both share one pass if their options are the same. The folder of kept passes also has the notes of
the node: when a job began, and what a prolog or an epilog found for the next health check.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from nodevet.base import last_verdict

FOLDER = "slurm"
MOST_DIGITS = 20


def answer(arguments: Sequence[str]) -> bytes | None:
    """The text to print, with exit code 0, if a kept pass still holds. None: run the command."""
    hook = arguments[1:2]
    if hook == ["prolog"]:
        note_job()
    if hook in (["prolog"], ["health"]):
        return last_verdict.recall(shared_words(arguments))
    return None


def shared_words(arguments: Sequence[str]) -> list[str]:
    """The command line, the same for both commands, for which a pass is kept."""
    return ["slurm", *arguments[2:]]


def notes() -> str:
    """The folder of notes. Raises LookupError if the user has none."""
    return f"{last_verdict.state_of_user()}/{FOLDER}"


def job() -> str:
    """The id of the job whose prolog or epilog this is; "" outside of a job."""
    number = os.environ.get("SLURM_JOB_ID", "")
    return number if number.isascii() and number.isdigit() and len(number) < MOST_DIGITS else ""


def note_job() -> None:
    """Note that the job begins now. Without the note, its epilog judges fewer Xids."""
    if number := job():
        with suppress(OSError, LookupError):
            folder = notes()
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 (pathlib takes longer)
            last_verdict.check_folder(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            note = os.open(f"{folder}/job-{number}", flags, 0o600)
            os.write(note, b"%d" % time.time())
            os.close(note)
