"""`nodevet apply`: carry out an approved plan, and prove it."""

import getpass
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from nodevet import report
from nodevet.cli import UserError, options, session, speech
from nodevet.cli.rollout import carried_out, override, rollout_options, split
from nodevet.cli.speech import say, say_at_once
from nodevet.model import Host

if TYPE_CHECKING:
    from nodevet.remedy.approval.verify import Signature
    from nodevet.remedy.journal.folder import RunFolder, SavedReach
    from nodevet.remedy.journal.journal import Journal, RunState
    from nodevet.remedy.model import Plan
    from nodevet.remedy.rollout.session import SessionTerms
    from nodevet.remedy.settings import Carried, Rollout
    from nodevet.result import Approval, HostResult, Result
    from nodevet.sweep import Bench

inventories = click.option(
    "-i",
    "--inventory",
    "inventories",
    multiple=True,
    metavar="FILE",
    help="Inventory that says how the plan's hosts are reached; else their names are used.",
)
shown = click.option(
    "--format",
    "form",
    type=click.Choice(report.formats()),
    default="table",
    show_default=True,
    help="Of the report on standard output; the run's folder has it in each.",
)


@click.command("apply")
@click.argument(
    "file", metavar="[PLAN]", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
@inventories
@options.baselines
@rollout_options(planned=False)
@override
@click.option(
    "--run",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the run is kept.  [default: runs/<plan>-<n> in the project]",
)
@click.option(
    "--resume",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="RUN",
    help="Go on with a run that was ended: what it left in the middle is looked at first.",
)
@shown
@options.reach
@options.project
def command(
    file: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    override: bool,
    folder: Path | None,
    resume: Path | None,
    form: str,
    project: Path,
    **rest: Any,
) -> None:
    """Carry out PLAN: on the canary first, then on the others, until too many fail.

    Each node is locked, probed and compared with what the plan was made on; whatever the check
    does not call right afterwards is put back at once. Ctrl-C begins no further node.

    Limits, times, reboots and the drain hook are the plan's; a run that is resumed keeps its own.

    \b
    Exit codes:
      0  every node of the plan is right, or pending a reboot that the plan speaks of
      1  something failed and was rolled back, was refused, or was not attempted
      2  usage, configuration, or the plan is not approved
      3  a rollback failed or an outcome is unknown: look at the node
    """
    from nodevet.remedy.approval.verify import signatures
    from nodevet.remedy.journal import space
    from nodevet.remedy.journal.folder import RunFolder
    from nodevet.remedy.journal.journal import Journal, read

    care, reach = split(rest)
    bench = session.open_bench(project, names)
    if resume and not file:
        run = RunFolder(resume)
        text, plan = run.plan()
        found, kept = signatures(run.plan_file), reached_before(run, inventories, reach)
    elif file and not resume:
        text, plan = read_plan(file)
        found, kept = signatures(file), reached_now(plan, inventories, reach)
        run = RunFolder(folder) if folder else RunFolder.fresh(project / "runs", plan)
    else:
        raise UserError("name either a PLAN, or a run to --resume")
    records = read(run.path) if resume else ()
    carried = carried_out(plan, records, care, override=override)
    rollout = carried.rollout
    for one in carried.overrides:
        say(f"not as approved: {one}")
    approvals = approved(text, plan, found, kept.hosts, project, reboot=rollout.reboots)
    if isinstance(approvals, list):
        if not resume:
            raise UserError("\n".join(["the plan may not be applied:", *approvals]))
        approvals = ()  # what was begun is still looked at; `closed` is asked of anything else
    terms = terms_of(run, rollout)
    if file:
        space.check(run.path, plan, rollout.batch)
    with Journal.open(run.path) if resume else Journal.create(run.path) as journal:
        if file:
            run.begin(file.name, text, found, kept)
        journal.reserve(space.reserve(plan, rollout.batch))
        order = {
            "plan": plan,
            "terms": terms,
            "closed": closing(run, text, plan, kept.hosts, project),
            "verify_reboot": rollout.verify_reboot,
        }
        result = carry_out(run, text, order, kept, bench, journal, approvals, carried)
    finish(run, result, "result", form)


def carry_out(
    run: "RunFolder",
    text: bytes,
    order: Mapping[str, Any],
    kept: "SavedReach",
    bench: "Bench",
    journal: "Journal",
    approvals: Sequence["Approval"],
    carried: "Carried",
) -> "Result":
    """The run itself. A second Ctrl-C leaves it as it is, and the message says how to go on."""
    from nodevet.fleet.controller.ssh_executor import SshExecutor
    from nodevet.remedy.journal.account import settled
    from nodevet.remedy.journal.folder import Opening
    from nodevet.remedy.journal.journal import state
    from nodevet.remedy.rollout.apply import ApplyOrder, Stop, apply
    from nodevet.remedy.rollout.compare import StepContext

    plan: Plan = order["plan"]
    earlier = same_plan(run, text, state(journal.records)) if journal.records else None
    if earlier and earlier.run:
        approvals = approvals or earlier.run.approvals
    finished = settled(plan, journal.records) if earlier else {}
    opened = Opening(run, text, plan, journal, approvals, carried.options)
    reach = session.fleet_options(**unplain(kept.options), bench=bench)
    with SshExecutor(kept.hosts, reach) as worker, Stop(say_at_once) as stop:
        try:
            ended, stopped = apply(
                ApplyOrder(
                    context=lambda host, baseline: StepContext(
                        host=host, baseline=baseline, catalog=bench.catalog, today=date.today()
                    ),
                    baselines={baseline.name: baseline for baseline in bench.baselines},
                    hosts=frozenset(host.name for host in kept.hosts),
                    keep=run.keep_evidence,
                    **order,
                ),
                worker,
                journal,
                carried.rollout.limits,
                pause=carried.rollout.pause,
                earlier=earlier,
                finished=finished,
                tell=tell,
                stop=stop,
            )
        except KeyboardInterrupt:
            say(f"nodes were left as they are: nodevet apply --resume {run.path}")
            raise
        return opened.result(ended, stopped)


# --- what rollback shares -------------------------------------------------------------------------


def same_plan(run: "RunFolder", text: bytes, state: "RunState") -> "RunState":
    """Raises UserError where the kept plan is no longer the one that the run began with."""
    from nodevet.remedy.model import digest

    if state.run is not None and state.run.plan != digest(text):
        raise UserError(f"{run.plan_file}: was changed since the run began; put it back")
    return state


def read_plan(file: Path) -> "tuple[bytes, Plan]":
    """A plan byte by byte, and decoded. Raises UserError and PlanError."""
    from nodevet.remedy import model

    try:
        text = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    return text, model.read(text)


def reached_now(plan: "Plan", inventories: Sequence[str], reach: Mapping[str, Any]) -> "SavedReach":
    """How the plan's hosts are reached, by the command line."""
    from nodevet.remedy.journal.folder import SavedReach

    names = {step.host for step in plan.steps}
    hosts = session.inventory(() if inventories else sorted(names), inventories, ())
    plain = {
        key: str(value.resolve()) if isinstance(value, Path) else value
        for key, value in reach.items()
    }
    return SavedReach(hosts=tuple(host for host in hosts if host.name in names), options=plain)


def reached_before(
    run: "RunFolder", inventories: Sequence[str], reach: Mapping[str, Any]
) -> "SavedReach":
    """How a run reached its hosts, but for what the command line says anew."""
    from nodevet.remedy.journal.folder import TOLD_ANEW, RunError

    _, plan = run.plan()
    now = reached_now(plan, inventories, reach) if inventories else None
    try:
        then = run.reach()
    except RunError:
        if now is None:
            raise
        then = now  # the command line alone says how, and the defaults
    context = click.get_current_context()
    given = {
        key: value
        for key, value in reach.items()
        if key in TOLD_ANEW or context.get_parameter_source(key) is ParameterSource.COMMANDLINE
    }
    return replace(then, hosts=now.hosts if now else then.hosts, options={**then.options, **given})


def unplain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `session.fleet_options` as they come out of a run's folder."""
    paths = ("ssh_config", "known_hosts")
    return {
        key: Path(value) if key in paths and value is not None else value
        for key, value in options.items()
    }


def approved(
    text: bytes,
    plan: "Plan",
    found: "Sequence[Signature]",
    hosts: Sequence[Host],
    project: Path,
    *,
    reboot: bool,
) -> "Sequence[Approval] | list[str]":
    """Who approved the plan, or every reason why it may not be applied.

    A reboot takes approvals as a plan of that risk does.
    """
    from nodevet.remedy.approval import verify
    from nodevet.remedy.approval.policy import load as load_policy

    policy, now = load_policy(project), datetime.now(timezone.utc)
    groups = {host.name: host.groups for host in hosts}
    outcome = verify.check_approvals(text, plan, found, policy, now, groups)
    if not isinstance(outcome, verify.Approved):
        return outcome
    if not reboot:
        return outcome.approvals
    raised = replace(plan, rollout=replace(plan.rollout, reboot=True))
    reasons = verify.unfit(raised, policy, now)
    verdicts = tuple(verify.signers(text, found, policy, now))
    people, ignored = verify.judge(raised, verdicts, policy, groups)
    if len(people) < (needed := verify.needs(raised, policy)):
        reasons += [*ignored, f"to reboot: {verify.too_few(raised, people, needed)}"]
    return reasons or tuple(people)


def closing(
    run: "RunFolder", text: bytes, plan: "Plan", hosts: Sequence[Host], project: Path
) -> Callable[[bool], str]:
    """Says why the plan may not be carried out at the moment of asking, or with True why no node
    may be rebooted for it; empty while it may. Signatures and policy are read again each time.
    """
    from nodevet.remedy.approval.policy import PolicyError
    from nodevet.remedy.approval.verify import ApproveError, signatures

    def closed(reboot: bool) -> str:
        try:
            found = signatures(run.plan_file)
            answer = approved(text, plan, found, hosts, project, reboot=reboot)
        except (ApproveError, PolicyError) as error:
            told = "; ".join(str(error).splitlines())
            return f"nobody can tell whether the plan is approved: {told}"
        return "; ".join(answer) if isinstance(answer, list) else ""

    return closed


def terms_of(run: "RunFolder", rollout: "Rollout") -> "SessionTerms":
    from nodevet.remedy.plan.holders import names
    from nodevet.remedy.rollout.session import SessionTerms

    return SessionTerms(
        who=f"{user()}@{socket.gethostname()}, run {run.path.resolve().name}, pid {os.getpid()}",
        settle=rollout.settle,
        reboot=rollout.reboot,
        reboot_seconds=rollout.reboot_timeout,
        boot_settle=rollout.boot_settle,
        drain_hook=rollout.drain_hook,
        harmless=names(rollout.holders),
    )


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in this container
        return f"uid {os.getuid()}"


def tell(host: "HostResult") -> None:
    """A node that ended, while the others go on."""
    from nodevet.report.parts.fixes import line

    speech.tell(line(host), err=True)


def finish(run: "RunFolder", result: "Result", stem: str, form: str) -> None:
    """Keep the reports, show one, and end with the run's exit code."""
    texts = {each: report.render(each, result) for each in report.formats()}
    run.keep({f"{stem}{ending}": texts[each] for each, ending in report.endings().items()})
    if run.lost:
        result = unkept(result, tuple(run.lost))
    speech.tell(report.render(form, result) if run.lost else texts[form], nl=False)
    if result.unknown:
        back = result.kind == "rollback"
        again = f"nodevet rollback {run.path}" if back else f"nodevet apply --resume {run.path}"
        say(f"{result.unknown}; then go on with: {again}")
    say(f"the run is kept in {run.path}")
    click.get_current_context().exit(result.exit_code)


def unkept(result: "Result", lost: Sequence[str]) -> "Result":
    """A run whose results are known, and not all kept."""
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    told = f"not all could be kept: {lost[0]}{more}"
    return replace(result, unknown="; ".join(filter(None, (result.unknown, told))))
