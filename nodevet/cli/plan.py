"""`nodevet plan`: what fixes would change, as a file that can be approved and applied."""

import getpass
import os
import re
import secrets
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from nodevet import __version__
from nodevet.cli import UserError, options, session
from nodevet.cli.output import Output, replace, try_out
from nodevet.cli.rollout import rollout_of, rollout_options, split
from nodevet.cli.seconds import duration
from nodevet.fixing.model import Risk
from nodevet.fleet import Options, Visit
from nodevet.model import Host, HostReport, Severity, Verdict
from nodevet.resource import Resource
from nodevet.sweep import Bench, reports

if TYPE_CHECKING:
    from nodevet.fleet.controller.ssh_executor import SshExecutor
    from nodevet.remedy.journal.attempts import Failure
    from nodevet.remedy.plan.candidates import Rules, VettedNode
    from nodevet.remedy.plan.planner import FixStates

LOOKERS = 32  # hosts that are looked at for a second time at once
LONGEST = timedelta(days=30)
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")  # one word of allowed_signers


def _time(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    """`24h`, `90m`, `2d`."""
    time = duration(value)
    if time is None:
        raise click.BadParameter(f"{value!r} is no time; say 24h, 90m or 2d", ctx, param)
    if not timedelta(0) < time <= LONGEST:
        raise click.BadParameter(f"{value} is not between 1m and {LONGEST.days}d", ctx, param)
    return time


@click.command("plan")
@options.hosts
@options.baselines
@click.option(
    "--fix",
    "fixes",
    multiple=True,
    metavar="ID",
    help="Plan this fix, and no others but those named so. Without it: those that the baseline "
    "allows under `fix`.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Let fixes restart the services that they put right, rather than wait until they start "
    "anew.",
)
@click.option(
    "--now",
    is_flag=True,
    help="Let fixes change processes that run, where they would only change how they start.",
)
@click.option(
    "--max-risk",
    type=click.Choice([risk.value for risk in Risk]),
    default=Risk.REBOOT.value,
    show_default=True,
    help="Plan nothing above this.",
)
@click.option(
    "--valid",
    callback=_time,
    default="24h",
    show_default=True,
    metavar="TIME",
    help="How long the plan may be applied: 90m, 24h, 2d.",
)
@click.option(
    "--window",
    callback=_time,
    default="24h",
    show_default=True,
    metavar="TIME",
    help="A fix that failed twice on a node within this time, by the runs that the project keeps, "
    "is not planned there.",
)
@click.option("--again", is_flag=True, help="Plan it there all the same.")
@click.option("--author", metavar="NAME", help="Who makes it, as allowed_signers says it.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the plan there, for `nodevet approve`. Without it the plan is only shown.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["fold", "diff"]),
    default="fold",
    show_default=True,
    help="Show equal changes once, or each host as a diff with its commands.",
)
@options.expect_hostname
@rollout_options(planned=True)
@options.reach
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    fixes: tuple[str, ...],
    restart: bool,
    now: bool,
    max_risk: str,
    valid: timedelta,
    window: timedelta,
    again: bool,
    author: str | None,
    file: Path | None,
    form: str,
    expect_hostname: bool,
    project: Path,
    **given: Any,
) -> None:
    """Plan how to put right what is wrong. Nothing on a node is changed.

    Vets the hosts as `nodevet check` does, then looks at what the fixes would change: what it
    is now, and whether something else on the node sets it too. How the plan is carried out, from
    --canary to --boot-settle, is approved with it.

    \b
    Exit codes:
      0  nothing to do: nothing is wrong that an allowed fix answers
      1  there is something to do, and the plan was written
      2  usage or configuration
      3  nothing is planned, but not all could be judged or planned
    """
    from nodevet.remedy import model
    from nodevet.remedy.plan import render, unplanned
    from nodevet.remedy.plan.candidates import Rules, draft
    from nodevet.remedy.plan.planner import make
    from nodevet.remedy.settings import no_hook

    care, reach = split(given)
    rollout_of(1, care)
    if file:
        try_out(file)
    bench = session.open_bench(project, names)
    rules = Rules(
        id=secrets.token_hex(4),
        author=_author(author),
        now=datetime.now().astimezone(),
        valid=valid,
        fixes=_named(fixes, bench) if fixes else None,
        max_risk=Risk(max_risk),
        nodevet=__version__,
        failed=() if again else _failed(project / "runs", window),
        rollout=lambda nodes: rollout_of(nodes, care),
    )
    rules = structs.replace(rules, options=_options(bench, rules, now=now, restart=restart))
    hosts = session.inventory(targets, inventories, limit, expect_hostname=expect_hostname)
    reached = session.fleet_options(bench=bench, **reach)
    drafted = draft(_vet(hosts, bench, reached), bench.catalog, rules)
    proposal = make(drafted, rules, _look(hosts, drafted.resources, reached))
    shown = render.diff(proposal.plan) if form == "diff" else render.fold(proposal.plan)
    steps = bool(proposal.plan.steps)
    hookless = no_hook([step.risk for step in proposal.plan.steps], proposal.plan.rollout)
    told = [shown if steps or proposal.plan.conflicts else "", unplanned.rest(proposal)]
    click.echo("\n".join(text for text in told if text), nl=False)
    if not steps:
        click.echo(f"{unplanned.conclusion(proposal)}.", err=True)
        if file and file.exists():
            click.echo(f"nodevet: {file} is of an earlier plan and was left as it is", err=True)
    elif file and hookless and not proposal.plan.rollout.drain_hook:
        raise UserError(f"{file} is not written: {hookless}; or leave it out: --max-risk idle")
    elif file:
        replace(file, model.write(proposal.plan).decode())
        click.echo(f"{file} is written; next: nodevet approve {file}", err=True)
    if steps and hookless:
        click.echo(f"nodevet: it cannot be applied as it is: {hookless}", err=True)
    click.get_current_context().exit(proposal.exit_code)


def _failed(runs: Path, window: timedelta) -> "tuple[Failure, ...]":
    """What failed lately; a run that cannot be read is told."""
    from nodevet.remedy.journal.attempts import recent

    found, problems = recent(runs, datetime.now().astimezone(), window)
    for problem in problems:
        click.echo(f"nodevet: what failed in an earlier run is not known: {problem}", err=True)
    return found


def _named(fixes: Sequence[str], bench: Bench) -> frozenset[str]:
    """The fixes of --fix. Raises UserError for one that does not exist or answers nothing."""
    asked = {wish.check for baseline in bench.baselines for wish in baseline.expectations}
    for fix in fixes:
        bench.catalog.fix_path(fix)
        if fix not in asked:
            raise UserError(f"--fix {fix}: no baseline of this run asks for {fix}")
    return frozenset(fixes)


def _options(bench: Bench, rules: "Rules", *, now: bool, restart: bool) -> frozenset[str]:
    """What is asked of the fixes. Raises UserError where that says nothing."""
    if now and restart:
        raise UserError("--now, --restart: what is restarted is not changed before; give one")
    chosen = frozenset(name for name, on in (("now", now), ("restart", restart)) if on)
    asked = {
        wish.check
        for baseline in bench.baselines
        for wish in baseline.expectations
        if rules.allow(wish) and wish.check in bench.catalog.fixes
    }
    for option in chosen:
        fixes = [fix for name in asked if (fix := bench.catalog.fix(name))]
        if not any(option in fix.options for fix in fixes):
            raise UserError(f"--{option}: no fix that may enter the plan takes it")
    return chosen


def _author(said: str | None) -> str:
    """Who makes the plan. Raises UserError for what cannot be a principal."""
    try:
        name = said or os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UserError("who makes the plan is not known; say it with --author") from error
    if not _AUTHOR.fullmatch(name):
        raise UserError(f"--author {name!r}: only letters, digits and . _ @ + - are possible")
    return name


def _vet(hosts: Sequence[Host], bench: Bench, reached: Options) -> list["VettedNode"]:
    """Every host as a check leaves it, with the evidence of those where something is wrong."""
    from nodevet.evidence.document import decode
    from nodevet.fleet import visit
    from nodevet.remedy.plan.candidates import VettedNode

    kept: dict[str, bytes] = {}

    def keep(one: Visit, host: Host) -> None:
        if one.evidence is not None:
            kept[one.host] = one.evidence

    def judged() -> Generator[HostReport]:
        with closing(reports(visit(hosts, reached), by_name, bench, keep)) as seen:
            for report in seen:
                if not any(finding.verdict is Verdict.FAIL for finding in report.findings):
                    kept.pop(report.host, None)
                yield report

    by_name = {host.name: host for host in hosts}
    run = session.carry_out(hosts, judged(), bench, Output(()), Severity.INFO)
    if run.interrupted:
        raise KeyboardInterrupt
    baselines = {baseline.name: baseline for baseline in bench.baselines}
    return [
        VettedNode(
            report=report,
            evidence=decode(kept[report.host]) if report.host in kept else None,
            baseline=baselines.get(report.baseline),
        )
        for report in run.hosts
    ]


def _look(
    hosts: Sequence[Host], resources: Mapping[str, tuple[Resource, ...]], reached: Options
) -> Mapping[str, "FixStates"]:
    """What the touches of each host are now, and who else sets them."""
    if not resources:
        return {}
    from nodevet.fleet.controller.ssh_executor import SshExecutor

    with (
        SshExecutor([host for host in hosts if host.name in resources], reached) as worker,
        ThreadPoolExecutor(min(LOOKERS, len(resources))) as pool,
    ):
        found = pool.map(lambda host: _look_at(worker, host, resources[host]), resources)
        return dict(zip(resources, found, strict=True))


def _look_at(worker: "SshExecutor", host: str, resources: Sequence[Resource]) -> "FixStates":
    from nodevet.fleet.executor import WorkError
    from nodevet.remedy.plan.planner import FixStates

    try:
        worker.open(host)
        try:
            return FixStates(
                seen=worker.look(host, resources), owners=worker.managers(host, resources)
            )
        finally:
            with suppress(WorkError):
                worker.close(host)
    except WorkError as error:
        return FixStates(why=str(error))
