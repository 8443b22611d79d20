"""The health check of a node: drain it if it fails."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.model import Finding, Host, Severity, Verdict
from nodevet.model.run import Run
from nodevet.slurm import kept, scontrol
from nodevet.slurm.decide import BUSY, FIXED, MAINTAINED, why_not_drained
from nodevet.slurm.reason import LOCAL, reason_text, troubles_of
from nodevet.slurm.use import notes
from nodevet.slurm.use.look import after_job, look
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.looks import UNKNOWN, Looks

FAILED = 1  # exit code of a run in which something fails
Say = Callable[[str], None]


class HealthLook(NamedTuple):
    """How a health check ended."""

    run: Run
    code: int
    is_done: bool  # whether the next health check has nothing more to do


def health(
    hosts: Sequence[Host],
    context: VetContext,
    fail_on: Severity,
    looks: Looks,
    node: str,
    say: Say,
    tag: str = "",
) -> HealthLook:
    """Vet this machine, and drain its node if it fails. `tag`: see nodevet.slurm.reason. Raises
    UserError."""
    run = look(hosts, context, fail_on)
    code, why = looks.code(run, run.exit_code)
    if why:
        say(why)
    if code in (FAILED, UNKNOWN):
        reason = reason_text(LOCAL, troubles_of(run, run.hosts[0]))
    else:
        reason = _after_job(hosts, context)
        code = FAILED if reason else code
    hidden = notes.read(notes.PROLOG)
    if not reason and not hidden:
        return HealthLook(run, code, is_done=True)
    is_done = _drain(node, reason, hidden, say, tag)
    if is_done:
        notes.remove(notes.PROLOG, notes.EPILOG)
    return HealthLook(run, code, is_done)


def since_job(hosts: Sequence[Host], context: VetContext, began: float | None) -> Run | None:
    """A run of what a job left behind; None if nothing fails. Only Xids since it `began` count."""
    run = look(hosts, after_job(context), Severity.INFO)
    (report,) = run.hosts
    failed = tuple(
        finding
        for finding in report.findings
        if finding.verdict is Verdict.FAIL and (finding.check != "xid" or _is_since(finding, began))
    )
    return replace(run, hosts=(replace(report, findings=failed),)) if failed else None


def _is_since(finding: Finding, began: float | None) -> bool:
    if began is None or not finding.last:
        return False
    return datetime.fromisoformat(finding.last).timestamp() >= began


def _after_job(hosts: Sequence[Host], context: VetContext) -> str:
    """The reason, if the fault that an epilog noted is still there. Otherwise "", and the note is
    removed."""
    note = notes.read(notes.EPILOG)
    if not note:
        return ""
    run = since_job(hosts, context, float(note))
    if run is None:
        notes.remove(notes.EPILOG)
        return ""
    return reason_text(LOCAL, troubles_of(run, run.hosts[0]))


def _drain(name: str, reason: str, hidden: str, say: Say, tag: str) -> bool:
    """Drain the node with a reason, or replace Slurm's `Prolog error` by the `hidden` one. Returns
    whether the next health check has nothing more to do for it."""
    if job := kept.job():
        say(f"inside job {job}, nodevet drains no node: {reason or hidden}")
        return False
    try:
        node = scontrol.read_node(name)
        wished = reason or hidden
        if not reason and not node.hides_reason:
            return True
        if why := why_not_drained(node, wished, will_look_again=True):
            say(f"{name} is unchanged in Slurm: {why}")
            return why not in (BUSY, FIXED, MAINTAINED)
        scontrol.drain([name], wished, tag)
        now = scontrol.read_node(name)
    except scontrol.SlurmError as error:
        say(f"cannot drain {name}: {error}; the next health check tries again: {reason or hidden}")
        return False
    if now.reason != wished:
        say(f"someone has just changed the reason of {name}: {now.reason!r}")
    else:
        say(f"{name} is drained: {wished}")
    return True
