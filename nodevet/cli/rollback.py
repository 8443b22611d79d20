"""`nodevet rollback`: put back what a run did."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from nodevet.cli import UserError, apply, options, rollout, session
from nodevet.cli.speech import say, say_at_once
from nodevet.model import Host
from nodevet.printable import brief

if TYPE_CHECKING:
    from nodevet.remedy.journal.folder import RunFolder
    from nodevet.remedy.journal.newer import Claims
    from nodevet.remedy.journal.records import JournalRecord
    from nodevet.remedy.model import Plan, Step
    from nodevet.remedy.settings import Rollout
    from nodevet.result import Approval, HostResult


@click.command("rollback")
@click.argument(
    "folder", metavar="RUN", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--host", "names", multiple=True, metavar="NODESET", help="These nodes only.")
@apply.inventories
@rollout.settle
@rollout.drain_hook
@apply.shown
@options.reach
@options.project
def command(
    folder: Path,
    names: tuple[str, ...],
    inventories: tuple[str, ...],
    settle: float | None,
    drain_hook: str | None,
    form: str,
    project: Path,
    **reach: Any,
) -> None:
    """Restore what every step of RUN changed, the last one first.

    Everything that a step touched is made what it was before, and looked at again. What is now
    neither what it was nor what the step set was changed since by somebody else: that is said,
    and it is left. May be run again.

    A run that somebody else applied takes approvals as its plan did: nodevet approve --rollback.

    \b
    Exit codes:
      0  everything is as it was before the run, or will be after the reboot or restart that the
         report names (pending); another rollback then says whether it is
      1  a node was refused, or something on it was changed since and is left
      2  usage or configuration
      3  a rollback failed or an outcome is unknown: look at the node
    """
    from nodevet.fleet.controller.ssh_executor import SshExecutor
    from nodevet.remedy.journal import space
    from nodevet.remedy.journal.account import host_end, strange
    from nodevet.remedy.journal.folder import Opening, RunFolder
    from nodevet.remedy.journal.journal import Journal, state
    from nodevet.remedy.rollout.apply import HostRunner, Stop
    from nodevet.remedy.rollout.limits import Limits, RolloutProgress
    from nodevet.remedy.rollout.rollback import (
        NodeRollback,
        RollbackTask,
        doubtful,
        nothing,
        touched,
    )
    from nodevet.remedy.rollout.session import NodeSession

    run = RunFolder(folder)
    text, plan = run.plan()
    hosts = _chosen(names, tuple(plan.nodes))
    kept = apply.reached_before(run, inventories, reach)
    reached = session.fleet_options(**apply.unplain(kept.options))
    batch = min(reached.parallel, len(hosts))
    with Journal.open(run.path) as journal:
        care = rollout.of_rollback(plan, journal.records, settle, drain_hook)
        terms = apply.terms_of(run, care)
        then = apply.same_plan(run, text, state(journal.records))
        known = {host.name for host in kept.hosts}
        odd = strange(plan, journal.records)
        todo = [host for host in hosts if touched(plan.of(host), then) and host not in odd]
        for host in todo:
            if host not in known:
                raise UserError(f"{host}: the inventory does not name it; give one with -i")
        _hooked([step for host in todo for step in touched(plan.of(host), then)], care)
        asked = partial(
            _approved, run, text, plan, todo, kept.hosts, project, tuple(journal.records)
        )
        approvals = asked()
        journal.reserve(space.reserve(plan, batch))
        opened = Opening(run, text, plan, journal, approvals, {}, kind="rollback", hosts=hosts)
        for host in hosts:
            if host in odd:
                journal.write(host_end(doubtful(host, odd[host])))
            elif host not in todo:
                journal.write(host_end(nothing(host, plan.of(host), then)))
        claims = _claims(run)
        with SshExecutor(kept.hosts, reached) as worker, Stop(say_at_once) as stop:

            def one(host: str, canary: bool) -> "HostResult":
                keep = partial(run.keep_evidence, host)
                back = RollbackTask(
                    host=host,
                    planned=plan.nodes[host],
                    steps=plan.of(host),
                    run=then,
                    newer=claims.get(plan.nodes[host].machine_id, {}),
                    closed=partial(_closed, asked),
                )
                return NodeRollback(back, NodeSession(host, worker, journal, terms, keep)).run()

            limits = Limits(canary=0, batch=batch, max_fail=len(todo))
            try:
                ended, why = HostRunner(limits, one, journal, apply.tell, stop).run(
                    todo, RolloutProgress()
                )
            except KeyboardInterrupt:
                say(f"nodes were left as they are: nodevet rollback {run.path}")
                raise
            result = run.whole(opened.result(ended, why), journal.records)
    apply.finish(run, result, run.next_stem("rollback"), form)


def _hooked(steps: "Sequence[Step]", care: "Rollout") -> None:
    """Raises UserError where nodes could not be drained that must be."""
    from nodevet.remedy.settings import no_hook

    if missing := no_hook([step.risk for step in steps], care):
        raise UserError(f"{missing}; or name nodes that need none with --host")


def _claims(run: "RunFolder") -> "Claims":
    """What newer runs need; folders that may be of one, and cannot be read, are told."""
    from nodevet.remedy.journal.newer import newer

    found = newer(run)
    for why in found.unread:
        say(f"whether it is a newer run is not known, and it is not heeded: {why}")
    return found.claims


def _approved(
    run: "RunFolder",
    text: bytes,
    plan: "Plan",
    todo: Sequence[str],
    hosts: Sequence[Host],
    project: Path,
    records: "Sequence[JournalRecord]",
) -> "Sequence[Approval]":
    """Who approved that the run is rolled back on these nodes; nobody has to where whoever applied
    it does so. Raises UserError where too few did.

    The plan itself must be signed as when it was applied, but for the day: the folder of a run is
    easier to write to than a signature is to make. Where a signer was revoked since, approvals of
    the rollback, which are over the same bytes, stand for those of the plan.
    """
    from nodevet.remedy.approval import verify
    from nodevet.remedy.approval.policy import load as load_policy
    from nodevet.remedy.journal.folder import operator
    from nodevet.remedy.journal.records import RunBegin

    if not todo:
        return ()
    policy, now = load_policy(project), datetime.now(timezone.utc)
    groups = {host.name: host.groups for host in hosts}
    found = verify.signatures(run.plan_file)
    signed = verify.check_approvals(text, plan, found, policy, now, groups, expires=False)
    known = isinstance(signed, verify.Approved)
    mine = operator()
    theirs = {one.user for one in records if isinstance(one, RunBegin) and one.kind == "apply"}
    if known and mine in theirs:
        return ()
    part = replace(plan, steps=tuple(step for step in plan.steps if step.host in todo))
    outcome = verify.check_rollback(
        text,
        part,
        verify.signatures(run.path / "rollback"),
        policy,
        now,
        groups,
    )
    if isinstance(outcome, verify.Approved):  # of these very bytes, whoever signed them before
        return outcome.approvals
    if not isinstance(signed, verify.Approved):
        why = "the approvals of the plan are not valid now, so the run may not be rolled back:"
        way = f"if it is the plan that was applied: nodevet approve --rollback {run.path}"
        raise UserError("\n".join([why, *signed, way]))
    who = ", ".join(sorted(brief(one) for one in theirs if one)) or "it does not say who"
    head = f"{run.path}: applied by {who}, not by {brief(mine)}; it may not be rolled back:"
    raise UserError("\n".join([head, *outcome]))


def _closed(asked: "Callable[[], Sequence[Approval]]", reboot: bool) -> str:
    """Why the rollback may not go on as of now; empty while it may. It reboots nothing."""
    from nodevet.remedy.approval.policy import PolicyError
    from nodevet.remedy.approval.verify import ApproveError

    try:
        asked()
    except (UserError, ApproveError, PolicyError) as error:
        return "; ".join(str(error).splitlines())
    return ""


def _chosen(names: tuple[str, ...], everything: tuple[str, ...]) -> tuple[str, ...]:
    """The run's nodes that are named, or all. Raises UserError for one that is none of them."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if not names:
        return everything
    try:
        wanted = {
            node
            for name in names
            for node in ([name] if name in everything else NodeSet(name, resolver=RESOLVER_NOGROUP))
        }
    except NodeSetException as error:
        raise UserError(f"--host: {error}") from error
    if stray := sorted(wanted - set(everything)):
        raise UserError(f"--host: {stray[0]} is none of the run's nodes")
    return tuple(host for host in everything if host in wanted)
