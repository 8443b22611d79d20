"""The prolog and epilog of a job. They never call Slurm, which waits for them."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.evidence.transient import is_booting
from nodevet.model import Host
from nodevet.model.run import Run
from nodevet.slurm import kept
from nodevet.slurm.reason import LOCAL, Trouble, reason_text, troubles_of
from nodevet.slurm.use import notes
from nodevet.slurm.use.health import FAILED, since_job
from nodevet.vet.use.context import VetContext

OF_JOBS = frozenset({"leftover_processes"})  # another job may own them: not the node's fault


class HookAnswer(NamedTuple):
    """The messages of a hook, and its exit code."""

    admin: str
    user: str = ""
    code: int = 0


def prolog(run: Run, node: str) -> HookAnswer:
    """The answer for a node that did not pass; a failure is noted for the next health check."""
    (report,) = run.hosts
    troubles = troubles_of(run, report)
    serious = [trouble for trouble in troubles if trouble.check not in OF_JOBS]
    reason = reason_text(LOCAL, serious or troubles)
    if run.exit_code != FAILED:
        return HookAnswer(f"unknown, so the job starts: {reason}")
    if is_booting(report.facts.uptime_s if report.facts else None):
        return HookAnswer(f"the machine has just booted, so the job starts: {reason}")
    if not serious:
        user = f"nodevet: other processes use the GPUs of {node}: {_troubles_text(troubles)}"
        return HookAnswer(f"another job may own these processes, so the job starts: {reason}", user)
    lost = notes.write(notes.PROLOG, reason)
    user = f"nodevet: {node} failed its check before your job started: your job is not at fault"
    return HookAnswer(f"job {kept.job() or '?'} does not start here: {reason}{lost}", user, FAILED)


def epilog(hosts: Sequence[Host], context: VetContext, node: str) -> HookAnswer:
    """The answer for what a job left behind. Raises UserError and OSError."""
    began = notes.job_began()
    run = since_job(hosts, context, began)
    if run is None:
        return HookAnswer("")
    troubles = troubles_of(run, run.hosts[0])
    lost = notes.write(notes.EPILOG, f"{time.time() if began is None else began:.0f}")
    user = f"nodevet: your job {kept.job()} left this on {node}: {_troubles_text(troubles)}"
    ran = "" if began is None else f" after {elapsed(time.time() - began)}"
    reason = reason_text(LOCAL, troubles)
    return HookAnswer(f"job {kept.job() or '?'} ended{ran}: {reason}{lost}", user)


def _troubles_text(troubles: Sequence[Trouble]) -> str:
    return "; ".join(f"{trouble.check} {trouble.what}".strip() for trouble in troubles)
