"""Does the class of an answer flip? Diagnoses running loads again and again.

`python -m tests.corpus.repeat KIND... [--times 20] [--hogs 0 20]` starts each load once for each
number of hogs, and prints how often each answer was given. It exits with 1 if two confident answers
of one load name different causes. Run it on a machine that does nothing else.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from nodevet.diagnose.model import Cause, Confidence
from nodevet_sim.library import build
from tests.corpus.kind import LENGTH, names
from tests.corpus.record import running

Answer = tuple[str, str]
"""(causes, confidence)"""


def answer_of(host: dict[str, Any]) -> Answer:
    gpu = host["gpus"][0]
    return " + ".join(sorted(gpu["causes"])) or gpu["cause"], gpu["confidence"]


def answers(name: str, hogs: int, times: int, library: Path) -> Counter[Answer]:
    background = "loaded" if hogs else "quiet"
    with running(name, background, library, hogs) as (machine, _):
        return Counter(
            answer_of(machine.diagnose("--duration", f"{LENGTH}s")) for _time in range(times)
        )


def flips(counted: Counter[Answer]) -> bool:
    """Whether two confident answers name different causes."""
    sure = {
        cause
        for cause, confidence in counted
        if confidence != Confidence.LOW.value and cause != Cause.UNCLEAR.value
    }
    return len(sure) > 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", choices=names())
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, 20])
    chosen = parser.parse_args()
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for name in chosen.kinds:
            for hogs in chosen.hogs:
                counted = answers(name, hogs, chosen.times, library)
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
