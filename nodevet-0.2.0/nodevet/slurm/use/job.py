"""Before and after a job: never calls Slurm, which waits for its prolog and epilog."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.evidence.transient import is_booting
from nodevet.model import Host, Run
from nodevet.slurm import kept
from nodevet.slurm.reason import LOCAL, Trouble, reason_text, troubles_of
from nodevet.slurm.use import notes
from nodevet.slurm.use.health import FAILED, since_job
from nodevet.vet.use.context import VetContext

OF_JOBS = frozenset(
    {"leftover_processes"}
)  # may belong to another job, which is no fault of a node


class HookAnswer(NamedTuple):
    """What a hook says, and its exit code."""

    admin: str
    user: str = ""
    code: int = 0


def prolog(run: Run, node: str) -> HookAnswer:
    """The answer to a look that is no pass; a failure is noted for the next health check. Raises
    UserError and OSError."""
    (report,) = run.hosts
    troubles = troubles_of(run, report)
    serious = [trouble for trouble in troubles if trouble.check not in OF_JOBS]
    reason = reason_text(LOCAL, serious or troubles)
    if run.exit_code != FAILED:
        return HookAnswer(f"unknown, so the job starts: {reason}")
    if is_booting(report.facts.uptime_s if report.facts else None):
        return HookAnswer(f"the machine has just booted, so the job starts: {reason}")
    if not serious:
        user = f"nodevet: other processes use the GPUs of {node}: {_what(troubles)}"
        return HookAnswer(f"another job may own them, so the job starts: {reason}", user)
    notes.write(notes.PROLOG, reason)
    user = f"nodevet: {node} failed its check before your job started: your job is not at fault"
    return HookAnswer(f"job {kept.job() or '?'} does not start here: {reason}", user, FAILED)


def epilog(hosts: Sequence[Host], context: VetContext, node: str) -> HookAnswer:
    """What a job left behind. Raises UserError and OSError."""
    began = notes.job_began()
    left = since_job(hosts, context, began)
    if left is None:
        return HookAnswer("")
    troubles = troubles_of(left, left.hosts[0])
    notes.write(notes.EPILOG, f"{time.time() if began is None else began:.0f}")
    user = f"nodevet: your job {kept.job()} left this on {node}: {_what(troubles)}"
    ran = "" if began is None else f" after {elapsed(time.time() - began)}"
    reason = reason_text(LOCAL, troubles)
    return HookAnswer(f"job {kept.job() or '?'} ended{ran}: {reason}", user)


def _what(troubles: Sequence[Trouble]) -> str:
    return "; ".join(f"{trouble.check} {trouble.what}".strip() for trouble in troubles)
