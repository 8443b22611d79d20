"""Apply an approved plan, and prove it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.fix.approval.verify import Signature, signatures
from nodevet.fix.events import FixListener
from nodevet.fix.journal import space
from nodevet.fix.journal.account import finished_hosts
from nodevet.fix.journal.folder import NOTHING, Opening, RunFolder, SavedReach
from nodevet.fix.journal.journal import Journal, JournalRecord, RunBegin, read, state
from nodevet.fix.model import Plan
from nodevet.fix.next_steps import FIX_AGAIN
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.apply import ApplyOrder, Stop, unproven_canaries
from nodevet.fix.rollout.apply import apply as roll_out
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.power import Powers
from nodevet.fix.settings import Carried, option
from nodevet.fix.use import confirmed
from nodevet.fix.use.approved import approval_check, find_approvals
from nodevet.fix.use.confirmed import Confirmation
from nodevet.fix.use.fix_run import chosen_hosts, keep, read_plan, resumable, same_plan, terms_of
from nodevet.fix.use.power import powers_of
from nodevet.fix.use.rollout import carried_out
from nodevet.fixing.result import NAMED, ONLY, Approval, Result, hosts_given
from nodevet.fleet.controller import ssh_executor
from nodevet.model.baseline import Baseline
from nodevet.sheet.text import count, nodeset
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.reach import fixed_alone, fleet_options


@dataclass(frozen=True, kw_only=True)
class Application:
    """A plan, and the folder of the run that applies it.

    `plan_name`: of the plan's file; None if an earlier run is resumed.
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
    application: Application,
    reach: SavedReach,
    context: VetContext,
    project: Project,
    overrides: Mapping[str, Any],
    *,
    only: Sequence[str] = (),
    named: Sequence[str] = (),
    override: bool = False,
    confirmation: Confirmation | None = None,
    listener: FixListener | None = None,
) -> Result:
    """Apply a plan, or resume its run, and store the reports in the run's folder.

    `overrides`: values of the rollout that differ from the plan's. `only`: nodesets of hosts of the
    plan; a resumed run keeps its own. `named`: the baselines of -b, for the commands that follow
    the run. `confirmation` of a plan for this machine, instead of signatures. After a first Ctrl-C
    the run starts no more hosts; a second one raises KeyboardInterrupt and leaves hosts as they
    are. Raises UserError, and what the plan, the policy, the journal and its folder raise.
    """
    note_listener, run, plan = listener or FixListener(), application.run, application.plan
    resumed = application.plan_name is None
    if resumed and only:
        raise UserError("--host: a resumed run keeps its hosts")
    records = read(run.path) if resumed else ()
    if resumed and not records:  # nor does it say which hosts were chosen
        raise UserError(f"{run.path}: {NOTHING}")
    todo = _chosen(plan, records, only)
    baselines = {baseline.label: baseline for baseline in context.baselines}
    _require_baselines(plan, todo, records, baselines)
    carried = carried_out(plan, records, overrides, override=override, hosts=len(todo))
    if len(todo) < len(_hosts(plan)):
        others_text = count(len(_hosts(plan)) - len(todo), "host")
        note_listener.note(f"only {nodeset(todo)}: {others_text} of the plan not attempted")
    for difference in carried.overrides:
        note_listener.note(f"not as approved: {difference}")
    _note_ended_hosts(application, records, todo, carried, overrides, note_listener)
    reboot = carried.rollout.reboots
    approvals: Sequence[Approval] | list[str]
    if confirmed.is_confirmed_run(records):
        confirmed.check(confirmed.resume_refusal(run, plan, reach.hosts))
        approvals = ()
    elif confirmation:
        confirmed.check(confirmed.project_refusal(project) or confirmed.refusal(plan, reach.hosts))
        approvals = (confirmation.approval,)
    else:
        approvals = find_approvals(
            application.text, plan, application.signatures, reach.hosts, project, reboot=reboot
        )
    if isinstance(approvals, list):
        if not resumed:
            raise UserError("\n".join(["the plan may not be applied:", *approvals]))
        approvals = ()  # what was begun is still looked at; `closed` is asked of anything else
    unfinished = set(todo) - finished_hosts(plan, records).keys() if records else todo
    powers = powers_of(reach.hosts, carried.rollout, sorted(unfinished))
    batch = carried.rollout.batch
    if not resumed:
        space.check_space(run.path, plan, batch)
    with Journal.open(run.path) if resumed else Journal.create(run.path) as journal:
        if application.plan_name is not None:
            run.begin(application.plan_name, application.text, application.signatures, reach)
        journal.reserve(space.reserve_bytes(plan, batch))
        result = _carry_out(
            application,
            reach,
            context,
            project,
            journal,
            approvals,
            carried,
            todo,
            named,
            confirmation,
            note_listener,
            powers,
        )
    return keep(run, result, "result")


def _hosts(plan: Plan) -> tuple[str, ...]:
    """The hosts with steps, in the order of the plan."""
    return tuple(host for host in plan.nodes if plan.host_steps(host))


def _chosen(plan: Plan, records: Sequence[JournalRecord], only: Sequence[str]) -> tuple[str, ...]:
    """The hosts of the run; a resumed run keeps those that it began for. Raises UserError."""
    first_begin = next((record for record in records if isinstance(record, RunBegin)), None)
    chosen_before = hosts_given(first_begin.options) if first_begin else None
    if chosen_before is not None:
        return tuple(host for host in _hosts(plan) if host in chosen_before)
    return chosen_hosts(only, _hosts(plan))


def _require_baselines(
    plan: Plan,
    hosts: Sequence[str],
    records: Sequence[JournalRecord],
    baselines: Mapping[str, Baseline],
) -> None:
    """Raises UserError if the baseline that a host was planned by is missing or changed.

    A resumed run also uses a changed baseline, for the hosts that it began.
    """
    finished = finished_hosts(plan, records) if records else {}
    for host in hosts:
        planned = plan.nodes[host]
        baseline = baselines.get(planned.baseline)
        if host not in finished and not (records and baseline):
            why = preconditions.baseline_mismatch(plan, planned, baseline)
            if why and baseline:
                raise UserError(f"{why}: plan again")
            if why:
                known_text = f"; known are {', '.join(sorted(baselines))}" if baselines else ""
                raise UserError(f"{why} {planned.baseline}.yaml{known_text}")


def _note_ended_hosts(
    application: Application,
    records: Sequence[JournalRecord],
    todo: Sequence[str],
    carried: Carried,
    overrides: Mapping[str, Any],
    listener: FixListener,
) -> None:
    """Note which hosts a resumed run leaves as they are. Raises UserError if these are all, so that
    the given options change nothing."""
    finished = finished_hosts(application.plan, records) if records else {}
    open_again = unproven_canaries(carried.rollout.limits, finished)
    ended = [host for host in todo if host in finished and host not in open_again]
    if not ended:
        return
    options_text = ", ".join(option(name) for name in overrides)
    if options_text and len(ended) == len(todo):
        raise UserError(
            f"{options_text}: every host of {application.run.path} has ended, so a resume visits "
            "and reboots none; plan again with the options that you want"
        )
    hosts = f"{nodeset(ended)}: ended earlier"
    listener.note(f"{hosts}, so they are neither visited nor rebooted" if options_text else hosts)


def _carry_out(
    application: Application,
    reach: SavedReach,
    context: VetContext,
    project: Project,
    journal: Journal,
    approvals: Sequence[Approval],
    carried: Carried,
    todo: Sequence[str],
    named: Sequence[str],
    confirmation: Confirmation | None,
    listener: FixListener,
    powers: Powers,
) -> Result:
    run, plan, rollout = application.run, application.plan, carried.rollout
    earlier = same_plan(run, application.text, state(journal.records)) if journal.records else None
    if earlier and earlier.run:
        approvals = approvals or earlier.run.approvals
    finished = finished_hosts(plan, journal.records) if earlier else {}
    hosts_option = {ONLY: list(todo)} if len(todo) < len(_hosts(plan)) else {}
    confirmation_option = (
        {confirmed.LOCAL: msgspec.to_builtins(confirmation)} if confirmation else {}
    )
    baseline_option = {NAMED: list(named)} if named else {}
    options = {**carried.options, **hosts_option, **confirmation_option, **baseline_option}
    closed = approval_check(run, application.text, plan, reach.hosts, project)
    signed = approval_check(run, application.text, plan, reach.hosts, project, expires=False)
    if confirmed.is_confirmed_run(journal.records):
        closed = confirmed.no_more_steps
    elif confirmation:
        closed = confirmed.closing_while_live(plan, reach.hosts, project)
    opened = Opening(run, application.text, plan, journal, approvals, options)

    def step_context(host: str, baseline: Baseline) -> StepContext:
        return StepContext(
            host=host, baseline=baseline, catalog=context.catalog, today=date.today()
        )

    order = ApplyOrder(
        plan=plan,
        context=step_context,
        baselines={baseline.label: baseline for baseline in context.baselines},
        hosts=frozenset(host.name for host in reach.hosts),
        terms=terms_of(run, rollout, plan, journal.records),
        only=frozenset(todo),
        verify_reboot=rollout.verify_reboot,
        closed=closed,
        withdrawn=partial(signed, rollout.reboots),
        keep=run.keep_evidence,
        powers=powers,
    )
    every = fleet_options(**reach.options, context=context, fixes=True)
    reaching = fixed_alone(every, context, {step.fix for step in plan.steps})
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
        results, stopped = roll_out(
            order,
            worker,
            journal,
            rollout.limits,
            pause=rollout.pause,
            earlier=earlier,
            finished=finished,
            on_event=listener.on_event,
            stop=stop,
        )
        return opened.result(results, stopped)
