"""Rollback: revert what a run did."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.fix.events import FixListener, HostBegun, RunBegun, without_errors
from nodevet.fix.journal import space
from nodevet.fix.journal.account import contradictory_hosts, host_end
from nodevet.fix.journal.folder import Opening, RunFolder, SavedReach
from nodevet.fix.journal.journal import Journal, state
from nodevet.fix.journal.newer import Claims, newer_runs_of
from nodevet.fix.model import Step
from nodevet.fix.rollout.apply import HostRunner, Stop
from nodevet.fix.rollout.limits import Limits, RolloutProgress
from nodevet.fix.rollout.rollback import (
    NodeRollback,
    RollbackTask,
    contradictory_host,
    nothing_to_revert,
    steps_to_revert,
)
from nodevet.fix.rollout.session import NodeSession
from nodevet.fix.settings import Rollout, missing_hook
from nodevet.fix.use.approved import closed_rollback, rollback_approved
from nodevet.fix.use.fix_run import chosen_hosts, keep, resumable, same_plan, terms_of
from nodevet.fix.use.power import powers_of
from nodevet.fix.use.rollout import of_rollback
from nodevet.fixing.result import HostResult, Result
from nodevet.fleet.controller import ssh_executor
from nodevet.vet.use.reach import fleet_options, reverted_alone


def rollback(
    run: RunFolder,
    reach: SavedReach,
    project: Project,
    *,
    given: Mapping[str, Any] = MappingProxyType({}),
    only: Sequence[str] = (),
    listener: FixListener | None = None,
) -> Result:
    """Revert every step of a run that was done or is unknown, the last one first, on the hosts
    that nodesets in `only` name, or on all; keep the reports in the run's folder. `given`:
    values of the rollout that differ from the run's.

    Raises UserError, and what the plan, the policy, the journal and its folder raise. Ctrl-C: see
    `nodevet.fix.use.apply`.
    """
    note_listener = listener or FixListener()
    text, plan = run.plan()
    hosts = chosen_hosts(only, tuple(plan.nodes))
    options = reverted_alone(fleet_options(**reach.options))
    batch = min(options.parallel, len(hosts))
    with Journal.open(run.path) as journal:
        care = of_rollback(plan, journal.records, given)
        run_state = same_plan(run, text, state(journal.records))
        reachable = {host.name for host in reach.hosts}
        contradictory = contradictory_hosts(plan, journal.records)
        todo = [
            host
            for host in hosts
            if steps_to_revert(plan.host_steps(host), run_state) and host not in contradictory
        ]
        for host in todo:
            if host not in reachable:
                raise UserError(f"{host}: the inventory does not name it; give one with -i")
        _require_hook(
            [step for host in todo for step in steps_to_revert(plan.host_steps(host), run_state)],
            care,
        )
        powers = powers_of(reach.hosts, care, todo)
        require_approvals = partial(
            rollback_approved,
            run,
            text,
            plan,
            todo,
            reach.hosts,
            project,
            tuple(journal.records),
        )
        approvals = require_approvals()
        journal.reserve(space.reserve_bytes(plan, batch))
        opened = Opening(run, text, plan, journal, approvals, {}, kind="rollback", hosts=hosts)
        terms = terms_of(run, care, plan, journal.records)
        for host in hosts:
            if host in contradictory:
                journal.write(host_end(contradictory_host(host, contradictory[host])))
            elif host not in todo:
                journal.write(host_end(nothing_to_revert(host, plan.host_steps(host), run_state)))
        claims, send = _claims(run, note_listener), without_errors(note_listener.on_event)
        with (
            resumable(run, "rollback", note_listener),
            ssh_executor.SshExecutor(reach.hosts, options) as worker,
            Stop(note_listener.note_in_signal) as stop,
        ):

            def revert_host(host: str, canary: bool) -> HostResult:
                steps = tuple(step.id for step in steps_to_revert(plan.host_steps(host), run_state))
                send(HostBegun(host=host, steps=steps))
                task = RollbackTask(
                    host=host,
                    planned=plan.nodes[host],
                    steps=plan.host_steps(host),
                    run=run_state,
                    newer=claims.get(plan.nodes[host].machine_id, {}),
                    closed=lambda reboot: closed_rollback(require_approvals),
                )
                evidence = partial(run.keep_evidence, host)
                session = NodeSession(
                    host,
                    worker,
                    journal,
                    terms,
                    evidence,
                    task.planned,
                    note_listener.on_event,
                    powers.get(host),
                )
                return NodeRollback(task, session).run()

            limits = Limits(canary=0, batch=batch, max_fail=len(todo))
            send(RunBegun(hosts=len(todo), limits=limits))
            results, why = HostRunner(
                limits, revert_host, journal, note_listener.on_event, stop
            ).run(todo, RolloutProgress())
            result = run.whole(opened.result(results, why), journal.records)
    return keep(run, result, run.next_stem("rollback"))


def _require_hook(steps: Sequence[Step], care: Rollout) -> None:
    """Raises UserError if nodevet cannot drain the nodes that need it."""
    if missing := missing_hook([step.risk for step in steps], care):
        raise UserError(f"{missing}; or name with --host only nodes that need no drain hook")


def _claims(run: RunFolder, listener: FixListener) -> Claims:
    """The resources that newer runs need; notes folders of runs that cannot be read."""
    newer_runs = newer_runs_of(run)
    for why in newer_runs.unread:
        listener.note(f"cannot tell whether it is a newer run, so it is ignored: {why}")
    return newer_runs.claims
