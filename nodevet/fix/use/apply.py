"""Apply: carry out an approved plan, and prove it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from nodevet.base.errors import UserError
from nodevet.fix.approval.verify import Signature, signatures
from nodevet.fix.journal import space
from nodevet.fix.journal.account import settled
from nodevet.fix.journal.folder import NOTHING, Opening, RunFolder, SavedReach
from nodevet.fix.journal.journal import Journal, JournalRecord, RunBegin, read, state
from nodevet.fix.listener import FixListener
from nodevet.fix.model import Plan
from nodevet.fix.next_steps import FIX_AGAIN
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.apply import ApplyOrder, Stop, unproven_canaries
from nodevet.fix.rollout.apply import apply as roll_out
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.settings import Carried, option
from nodevet.fix.use import confirmed
from nodevet.fix.use.approved import approved, closing
from nodevet.fix.use.confirmed import Confirmation
from nodevet.fix.use.fix_run import chosen, keep, read_plan, resumable, same_plan, terms_of
from nodevet.fix.use.rollout import carried_out
from nodevet.fixing.result import NAMED, ONLY, Approval, Result, chosen_of
from nodevet.fleet.controller import ssh_executor
from nodevet.model import Baseline
from nodevet.sheet.text import count, nodeset
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.reach import fleet_options


@dataclass(frozen=True, kw_only=True)
class Application:
    """A plan, and the folder of the run that carries it out.

    `plan_name` is that of the plan's file; None if the run was begun earlier, and is resumed.
    """

    run: RunFolder
    text: bytes
    plan: Plan
    signatures: Sequence[Signature]
    plan_name: str | None = None


def new_application(file: Path, project: Path, folder: Path | None = None) -> Application:
    """A plan to apply in `folder`, or in the project's next. Raises UserError and PlanError."""
    text, plan = read_plan(file)
    run = RunFolder(folder) if folder else RunFolder.fresh(project / "runs", plan)
    return Application(
        run=run, text=text, plan=plan, signatures=signatures(file), plan_name=file.name
    )


def earlier_application(folder: Path) -> Application:
    """A run to resume. Raises RunError and PlanError."""
    run = RunFolder(folder)
    text, plan = run.plan()
    return Application(run=run, text=text, plan=plan, signatures=signatures(run.plan_file))


def apply(
    what: Application,
    reach: SavedReach,
    context: VetContext,
    project: Path,
    given: Mapping[str, Any],
    *,
    only: Sequence[str] = (),
    named: Sequence[str] = (),
    override: bool = False,
    confirmation: Confirmation | None = None,
    listener: FixListener | None = None,
) -> Result:
    """Carry out a plan, or go on with its run, and keep the reports in the run's folder.

    `given`: settings of a rollout that are other than the plan's. `only`: nodesets of the plan's
    hosts that the run is for; a resumed run keeps its own. `named`: the baselines that -b named,
    for the commands that go on with the run. `confirmation`: of a plan for the
    machine at hand, instead of signatures. A first Ctrl-C begins no further
    host; a second one raises KeyboardInterrupt and leaves hosts as they are.
    Raises UserError, and what the plan, the policy, the journal and its folder raise.
    """
    hears, run, plan = listener or FixListener(), what.run, what.plan
    resumed = what.plan_name is None
    if resumed and only:
        raise UserError("--host: a run that is resumed keeps the hosts that it was begun for")
    kept = read(run.path) if resumed else ()
    if resumed and not kept:  # nor does it say which hosts were chosen
        raise UserError(f"{run.path}: {NOTHING}")
    todo = _chosen(plan, kept, only)
    baselines = {baseline.label: baseline for baseline in context.baselines}
    _known(plan, todo, kept, baselines)
    carried = carried_out(plan, kept, given, override=override, hosts=len(todo))
    if len(todo) < len(_hosts(plan)):
        left = count(len(_hosts(plan)) - len(todo), "host")
        hears.note(f"only {nodeset(todo)}: {left} of the plan not attempted")
    for one in carried.overrides:
        hears.note(f"not as approved: {one}")
    _untouched(what, kept, todo, carried, given, hears)
    reboot = carried.rollout.reboots
    found: Sequence[Approval] | list[str]
    if confirmed.before(kept):
        confirmed.check(confirmed.refused_later(run, plan, reach.hosts))
        found = ()
    elif confirmation:
        confirmed.check(confirmed.refused_by(project) or confirmed.refusal(plan, reach.hosts))
        found = (confirmation.approval,)
    else:
        found = approved(what.text, plan, what.signatures, reach.hosts, project, reboot=reboot)
    if isinstance(found, list):
        if not resumed:
            raise UserError("\n".join(["the plan may not be applied:", *found]))
        found = ()  # what was begun is still looked at; `closed` is asked of anything else
    batch = carried.rollout.batch
    if not resumed:
        space.check(run.path, plan, batch)
    with Journal.open(run.path) if resumed else Journal.create(run.path) as journal:
        if what.plan_name is not None:
            run.begin(what.plan_name, what.text, what.signatures, reach)
        journal.reserve(space.reserve(plan, batch))
        result = _carry_out(
            what, reach, context, project, journal, found, carried, todo, named, confirmation, hears
        )
    return keep(run, result, "result")


def _hosts(plan: Plan) -> tuple[str, ...]:
    """Those for which the plan has a step, in its order."""
    return tuple(host for host in plan.nodes if plan.of(host))


def _chosen(plan: Plan, kept: Sequence[JournalRecord], only: Sequence[str]) -> tuple[str, ...]:
    """The hosts that the run is for; one that is resumed was begun for these. Raises UserError."""
    first = next((one for one in kept if isinstance(one, RunBegin)), None)
    before = chosen_of(first.options) if first else None
    if before is not None:
        return tuple(host for host in _hosts(plan) if host in before)
    return chosen(only, _hosts(plan))


def _known(
    plan: Plan,
    hosts: Sequence[str],
    kept: Sequence[JournalRecord],
    baselines: Mapping[str, Baseline],
) -> None:
    """Raises UserError if hosts cannot be worked on, as what they were planned by is not here.

    A run that is resumed looks at what it began by a baseline that was changed, too.
    """
    done = settled(plan, kept) if kept else {}
    for host in hosts:
        planned = plan.nodes[host]
        baseline = baselines.get(planned.baseline)
        if host not in done and not (kept and baseline):
            why = preconditions.other_baseline(plan, planned, baseline)
            if why and baseline:
                raise UserError(f"{why}: plan again")
            if why:
                known = f"; known are {', '.join(sorted(baselines))}" if baselines else ""
                raise UserError(f"{why} {planned.baseline}.yaml{known}")


def _untouched(
    what: Application,
    kept: Sequence[JournalRecord],
    todo: Sequence[str],
    carried: Carried,
    given: Mapping[str, Any],
    listener: FixListener,
) -> None:
    """Tells which hosts a resumed run leaves as they are. Raises UserError if these are all, and
    settings are given that would change nothing."""
    done = settled(what.plan, kept) if kept else {}
    open_again = unproven_canaries(carried.rollout.limits, done)
    ended = [host for host in todo if host in done and host not in open_again]
    if not ended:
        return
    asked = ", ".join(option(name) for name in given)
    if asked and len(ended) == len(todo):
        raise UserError(
            f"{asked}: every host of {what.run.path} has ended, so a resume visits and reboots "
            "none; plan again with what you want"
        )
    hosts = f"{nodeset(ended)}: ended earlier"
    listener.note(f"{hosts}, so they are neither visited nor rebooted" if asked else hosts)


def _carry_out(
    what: Application,
    reach: SavedReach,
    context: VetContext,
    project: Path,
    journal: Journal,
    approvals: Sequence[Approval],
    carried: Carried,
    todo: Sequence[str],
    named: Sequence[str],
    confirmation: Confirmation | None,
    listener: FixListener,
) -> Result:
    run, plan, rollout = what.run, what.plan, carried.rollout
    earlier = same_plan(run, what.text, state(journal.records)) if journal.records else None
    if earlier and earlier.run:
        approvals = approvals or earlier.run.approvals
    finished = settled(plan, journal.records) if earlier else {}
    fewer = {ONLY: list(todo)} if len(todo) < len(_hosts(plan)) else {}
    said = {confirmed.LOCAL: msgspec.to_builtins(confirmation)} if confirmation else {}
    given = {NAMED: list(named)} if named else {}
    options = {**carried.options, **fewer, **said, **given}
    closed = closing(run, what.text, plan, reach.hosts, project)
    if confirmed.before(journal.records):
        closed = confirmed.once
    elif confirmation:
        closed = confirmed.while_live(plan, reach.hosts, project)
    opened = Opening(run, what.text, plan, journal, approvals, options)

    def step_context(host: str, baseline: Baseline) -> StepContext:
        return StepContext(
            host=host, baseline=baseline, catalog=context.catalog, today=date.today()
        )

    order = ApplyOrder(
        plan=plan,
        context=step_context,
        baselines={baseline.label: baseline for baseline in context.baselines},
        hosts=frozenset(host.name for host in reach.hosts),
        terms=terms_of(run, rollout),
        only=frozenset(todo),
        verify_reboot=rollout.verify_reboot,
        closed=closed,
        keep=run.keep_evidence,
    )
    reaching = fleet_options(**reach.options, context=context, fixes=True)
    with (
        resumable(
            run,
            "apply --resume",
            listener,
            named=named,
            then=FIX_AGAIN if confirmed.LOCAL in options else "",
        ),
        ssh_executor.SshExecutor(reach.hosts, reaching) as worker,
        Stop(listener.note_in_signal) as stop,
    ):
        ended, stopped = roll_out(
            order,
            worker,
            journal,
            rollout.limits,
            pause=rollout.pause,
            earlier=earlier,
            finished=finished,
            heard=listener.heard,
            stop=stop,
        )
        return opened.result(ended, stopped)
