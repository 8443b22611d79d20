"""Apply: carry out an approved plan, and prove it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from nodevet.fleet.controller import ssh_executor
from nodevet.model import Baseline
from nodevet.remedy.approval.verify import Signature, signatures
from nodevet.remedy.journal import space
from nodevet.remedy.journal.account import settled
from nodevet.remedy.journal.folder import Opening, RunFolder, SavedReach
from nodevet.remedy.journal.journal import Journal, read, state
from nodevet.remedy.model import Plan
from nodevet.remedy.rollout.apply import ApplyOrder, Stop
from nodevet.remedy.rollout.apply import apply as roll_out
from nodevet.remedy.rollout.compare import StepContext
from nodevet.remedy.settings import Carried
from nodevet.result import Approval, Result
from nodevet.run.approved import approved, closing
from nodevet.run.context import VetContext
from nodevet.run.errors import UserError
from nodevet.run.fix_run import keep, read_plan, same_plan, tell_folder, terms_of
from nodevet.run.listener import FixListener
from nodevet.run.reach import fleet_options
from nodevet.run.rollout import carried_out


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
    override: bool = False,
    listener: FixListener | None = None,
) -> Result:
    """Carry out a plan, or go on with its run, and keep the reports in the run's folder.

    `given`: settings of a rollout that are other than the plan's. A first Ctrl-C begins no further
    host; a second one raises KeyboardInterrupt and leaves hosts as they are.
    Raises UserError, and what the plan, the policy, the journal and its folder raise.
    """
    hears, run, plan = listener or FixListener(), what.run, what.plan
    resumed = what.plan_name is None
    carried = carried_out(plan, read(run.path) if resumed else (), given, override=override)
    for one in carried.overrides:
        hears.note(f"not as approved: {one}")
    reboot = carried.rollout.reboots
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
        tell_folder(run, "apply --resume", hears)
        result = _carry_out(what, reach, context, project, journal, found, carried, hears)
    return keep(run, result, "result")


def _carry_out(
    what: Application,
    reach: SavedReach,
    context: VetContext,
    project: Path,
    journal: Journal,
    approvals: Sequence[Approval],
    carried: Carried,
    listener: FixListener,
) -> Result:
    run, plan, rollout = what.run, what.plan, carried.rollout
    earlier = same_plan(run, what.text, state(journal.records)) if journal.records else None
    if earlier and earlier.run:
        approvals = approvals or earlier.run.approvals
    finished = settled(plan, journal.records) if earlier else {}
    opened = Opening(run, what.text, plan, journal, approvals, carried.options)

    def step_context(host: str, baseline: Baseline) -> StepContext:
        return StepContext(
            host=host, baseline=baseline, catalog=context.catalog, today=date.today()
        )

    order = ApplyOrder(
        plan=plan,
        context=step_context,
        baselines={baseline.name: baseline for baseline in context.baselines},
        hosts=frozenset(host.name for host in reach.hosts),
        terms=terms_of(run, rollout),
        verify_reboot=rollout.verify_reboot,
        closed=closing(run, what.text, plan, reach.hosts, project),
        keep=run.keep_evidence,
    )
    options = fleet_options(**reach.options, context=context, fixes=True)
    with (
        ssh_executor.SshExecutor(reach.hosts, options) as worker,
        Stop(listener.note_in_signal) as stop,
    ):
        try:
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
        except KeyboardInterrupt:
            listener.note(f"nodes were left as they are: nodevet apply --resume {run.path}")
            raise
        return opened.result(ended, stopped)
