"""Phases of a job in which its GPU may wait though nothing is wrong: start, compilation (pure)."""

from collections.abc import Iterable

from nodevet.diagnose.job_figures import WatchedJob
from nodevet.evidence.process_activity import ProcessActivity

START = 180.0  # seconds: imports, weights, first compilation, warm-up of caches
COMPILERS = (
    *("ptxas", "nvcc", "cicc", "cc1", "cc1plus", "cudafe++", "nvlink", "fatbinary", "as", "ld"),
    *("ninja", "triton", "clang", "ld.lld", "gcc", "g++"),
)


COMPILES = "it compiles"
UNREAD = "how long the job has run, or what its helpers are, was not read"


def phase_text(job: WatchedJob, uptime_s: float | None) -> str:
    """The phase that the job seems to be in, as a reason to doubt; empty without one."""
    commands = [each.command for each in helpers(job)]
    compiler = next((command for command in commands if command in COMPILERS), None)
    if compiler:
        return f"{COMPILES} ({compiler}), which ends by itself unless each step does it"
    started = [each.started_s for each in job.processes if each.pid in job.on_gpu]
    ages = [uptime_s - at for at in started if at is not None and uptime_s is not None]
    if None in commands or len(ages) < len(started):
        return UNREAD
    if not ages or max(ages) >= START:
        return ""
    return f"the job is only {max(0.0, *ages):.0f} s old, and may still be starting up"


def phase_step(phase: str) -> str:
    """What to do before the next step of a cause; empty if no phase was seen."""
    if phase in ("", UNREAD):
        return ""
    if phase.startswith(COMPILES):
        return "watch again when that ends; if each step compiles, build the kernels before; else: "
    return "watch again when that phase is over; if nothing changed: "


def helpers(job: WatchedJob) -> Iterable[ProcessActivity]:
    return (each for each in job.processes if each.pid not in job.on_gpu)
