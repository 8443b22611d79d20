"""Phases of a job in which its GPU may wait though nothing is wrong: start, compilation (pure)."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from nodevet.base.age import instant
from nodevet.diagnose.job_figures import WatchedJob
from nodevet.evidence.process_activity import ProcessActivity

START = 180.0  # seconds: imports, weights, first compilation, warm-up of caches
COMPILERS = (
    *("ptxas", "nvcc", "cicc", "cc1", "cc1plus", "cudafe++", "nvlink", "fatbinary", "as", "ld"),
    *("ninja", "triton", "clang", "ld.lld", "gcc", "g++"),
)


COMPILES = "it compiles"
UNREAD = "nodevet could not read how long the job has run, or what its helpers are"


class JobPhase(NamedTuple):
    """A phase that the job will leave by itself."""

    doubt: str = ""
    step: str = ""  # what to do before the next step of a cause


def phase_of(job: WatchedJob, uptime_s: float | None, began_s: float | None) -> JobPhase:
    """The phase that the job seems to be in; empty without one. `uptime_s` and `began_s`: since
    boot and since 1970, at the first look."""
    commands = [helper.command for helper in helpers(job)]
    compiler = next((command for command in commands if command in COMPILERS), None)
    if compiler:
        return JobPhase(
            f"{COMPILES} ({compiler}), which ends by itself unless each step does it", AGAIN
        )
    started = [process.started_s for process in job.processes if process.pid in job.on_gpu]
    ages = [uptime_s - at for at in started if at is not None and uptime_s is not None]
    if None in commands or len(ages) < len(started):
        return JobPhase(UNREAD)
    if not ages or max(ages) >= START:
        return JobPhase()
    age = max(0.0, *ages)
    return JobPhase(
        f"the job began only {age:.0f} s before the watch, and may still be starting up",
        _watch_again_text(None if began_s is None else began_s + START - age, START - age),
    )


AGAIN = (
    "watch again when that ends; if each step compiles, build the kernels in advance; otherwise: "
)


def _watch_again_text(at_s: float | None, left_s: float) -> str:
    """`at_s`: when the job is as old as START; `left_s`: until then, from the watch on."""
    when = instant(None if at_s is None else math.ceil(at_s)).replace("T", " ")
    after = f" (after {when})" if when else ""
    minutes = math.ceil(left_s / 60)
    return (
        f"watch again in {minutes} min{after}, when the job is {START / 60:.0f} min old; if it "
        "says the same: "
    )


def helpers(job: WatchedJob) -> Iterable[ProcessActivity]:
    return (process for process in job.processes if process.pid not in job.on_gpu)
