"""Rollback: revert what a run did."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nodevet.base.errors import UserError
from nodevet.fix.events import HostBegun, RunBegun, safely
from nodevet.fix.journal import space
from nodevet.fix.journal.account import host_end, strange
from nodevet.fix.journal.folder import Opening, RunFolder, SavedReach
from nodevet.fix.journal.journal import Journal, state
from nodevet.fix.journal.newer import Claims, newer
from nodevet.fix.listener import FixListener
from nodevet.fix.model import Step
from nodevet.fix.rollout.apply import HostRunner, Stop
from nodevet.fix.rollout.limits import Limits, RolloutProgress
from nodevet.fix.rollout.rollback import NodeRollback, RollbackTask, doubtful, nothing, touched
from nodevet.fix.rollout.session import NodeSession
from nodevet.fix.settings import Rollout, no_hook
from nodevet.fix.use.approved import closed_rollback, rollback_approved
from nodevet.fix.use.fix_run import chosen, keep, resumable, same_plan, terms_of
from nodevet.fix.use.rollout import of_rollback
from nodevet.fixing.result import HostResult, Result
from nodevet.fleet.controller import ssh_executor
from nodevet.vet.use.reach import fleet_options


def rollback(
    run: RunFolder,
    reach: SavedReach,
    project: Path,
    *,
    given: Mapping[str, Any] = MappingProxyType({}),
    only: Sequence[str] = (),
    listener: FixListener | None = None,
) -> Result:
    """Revert every step of a run that was done or is unknown, the last one first, on the hosts
    that nodesets in `only` name, or on all; keep the reports in the run's folder. `given`: settings
    of a rollout that are other than the run's.

    Raises UserError, and what the plan, the policy, the journal and its folder raise. Ctrl-C: see
    `nodevet.fix.use.apply`.
    """
    hears = listener or FixListener()
    text, plan = run.plan()
    hosts = chosen(only, tuple(plan.nodes))
    options = fleet_options(**reach.options)
    batch = min(options.parallel, len(hosts))
    with Journal.open(run.path) as journal:
        care = of_rollback(plan, journal.records, given)
        terms = terms_of(run, care)
        then = same_plan(run, text, state(journal.records))
        known = {host.name for host in reach.hosts}
        odd = strange(plan, journal.records)
        todo = [host for host in hosts if touched(plan.of(host), then) and host not in odd]
        for host in todo:
            if host not in known:
                raise UserError(f"{host}: the inventory does not name it; give one with -i")
        _hooked([step for host in todo for step in touched(plan.of(host), then)], care)
        asked = partial(
            rollback_approved,
            run,
            text,
            plan,
            todo,
            reach.hosts,
            project,
            tuple(journal.records),
        )
        approvals = asked()
        journal.reserve(space.reserve(plan, batch))
        opened = Opening(run, text, plan, journal, approvals, {}, kind="rollback", hosts=hosts)
        for host in hosts:
            if host in odd:
                journal.write(host_end(doubtful(host, odd[host])))
            elif host not in todo:
                journal.write(host_end(nothing(host, plan.of(host), then)))
        claims, told = _claims(run, hears), safely(hears.heard)
        with (
            resumable(run, "rollback", hears),
            ssh_executor.SshExecutor(reach.hosts, options) as worker,
            Stop(hears.note_in_signal) as stop,
        ):

            def one(host: str, canary: bool) -> HostResult:
                steps = tuple(step.id for step in touched(plan.of(host), then))
                told(HostBegun(host=host, steps=steps))
                back = RollbackTask(
                    host=host,
                    planned=plan.nodes[host],
                    steps=plan.of(host),
                    run=then,
                    newer=claims.get(plan.nodes[host].machine_id, {}),
                    closed=lambda reboot: closed_rollback(asked),
                )
                evidence = partial(run.keep_evidence, host)
                session = NodeSession(
                    host, worker, journal, terms, evidence, back.planned, hears.heard
                )
                return NodeRollback(back, session).run()

            limits = Limits(canary=0, batch=batch, max_fail=len(todo))
            told(RunBegun(hosts=len(todo), limits=limits))
            ended, why = HostRunner(limits, one, journal, hears.heard, stop).run(
                todo, RolloutProgress()
            )
            result = run.whole(opened.result(ended, why), journal.records)
    return keep(run, result, run.next_stem("rollback"))


def _hooked(steps: Sequence[Step], care: Rollout) -> None:
    """Raises UserError if nodes could not be drained that must be."""
    if missing := no_hook([step.risk for step in steps], care):
        raise UserError(f"{missing}; or name nodes that need none with --host")


def _claims(run: RunFolder, listener: FixListener) -> Claims:
    """What newer runs need; folders that may be of one, and cannot be read, are told."""
    found = newer(run)
    for why in found.unread:
        listener.note(f"cannot tell whether it is a newer run, so it is ignored: {why}")
    return found.claims
