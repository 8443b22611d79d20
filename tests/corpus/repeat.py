"""Does the class of an answer flip? Diagnoses running loads again and again.

`python -m tests.corpus.repeat KIND... [--times 20] [--hogs 0 20] [--seconds 5]` starts each load
once for each number of hogs, and prints how often each answer was given. It exits with 1 if two
confident answers of one load name different causes, or with `--jobs`, for kinds of
tests/corpus/jobs, different late ranks. Run it on a machine that does nothing else.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from nodevet.diagnose.model import Cause, Confidence
from nodevet_sim.library import build
from tests.corpus import job, record_job
from tests.corpus.calibrate_jobs import ranks_text
from tests.corpus.kind import LENGTH, kind, names
from tests.corpus.record import running

Answer = tuple[str, str]
"""(causes, confidence); of a job, `rank: cause` for each late rank"""


def answer_of(host: dict[str, Any]) -> Answer:
    gpu = host["gpus"][0]
    return " + ".join(sorted(gpu["causes"])) or gpu["cause"], gpu["confidence"]


def answers(name: str, hogs: int, times: int, seconds: int, library: Path) -> Counter[Answer]:
    background = kind(name).backgrounds[0]  # quiet, or what the load does nothing without
    with running(name, background, library, hogs) as (machine, _):
        return Counter(
            answer_of(machine.diagnose("--duration", f"{seconds}s")) for _time in range(times)
        )


def job_answer(found: dict[str, Any]) -> Answer:
    late = [found["ranks"][place] for place in found["late"]]
    causes = sorted({rank["cause"] or rank["state"] for rank in late})
    numbers = ranks_text(rank["number"] for rank in late)
    return ": ".join([numbers, *filter(None, [" + ".join(causes)])]), found["confidence"]


def job_answers(name: str, hogs: int, times: int, seconds: int, library: Path) -> Counter[Answer]:
    with (
        record_job.running(name, hogs, library) as machine,
        tempfile.TemporaryDirectory() as folder,
        record_job.scheduler(Path(folder)) as before,
    ):
        words = ("--job", "12", "--duration", f"{seconds}s")
        return Counter(
            job_answer(machine.diagnosis(*words, before=before)["job"]) for _time in range(times)
        )


def flips(counted: Counter[Answer]) -> bool:
    """Whether two confident answers name different causes; of a job, different ranks."""
    sure = {
        cause.partition(":")[0]
        for cause, confidence in counted
        if confidence != Confidence.LOW.value and cause != Cause.UNCLEAR.value
    }
    return len(sure) > 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "kinds", nargs="+", choices=sorted({*names(), *job.names()}), metavar="KIND"
    )
    parser.add_argument("--jobs", action="store_true", help="kinds of jobs")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--seconds", type=int, default=LENGTH, help="of each watch")
    chosen = parser.parse_args()
    if unknown := set(chosen.kinds) - set(job.names() if chosen.jobs else names()):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        ask = job_answers if chosen.jobs else answers
        for name in chosen.kinds:
            for hogs in chosen.hogs:
                counted = ask(name, hogs, chosen.times, chosen.seconds, library)
                listed = ", ".join(
                    f"{number} x {cause} ({confidence})"
                    for (cause, confidence), number in counted.most_common()
                )
                has_flipped = flips(counted)
                mark = "FLIPS: " if has_flipped else ""
                code = code or int(has_flipped)
                sys.stdout.write(f"{name}, {hogs} hogs: {mark}{listed}\n")
                sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
