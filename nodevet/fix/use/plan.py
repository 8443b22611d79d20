"""Plan: what fixes would change on hosts that fail, and what that would meet there."""

import getpass
import os
import re
import secrets
import shlex
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from nodevet import __version__
from nodevet.base import outputs as files
from nodevet.base.durations import elapsed
from nodevet.base.errors import UserError
from nodevet.base.outputs import FileError, file_errors, replace
from nodevet.baseline.library import shipped
from nodevet.document import kinds
from nodevet.document.kinds import DocumentKind
from nodevet.evidence.document import Evidence
from nodevet.fix import model
from nodevet.fix.journal.attempts import Failure, recent
from nodevet.fix.journal.contents import ContentError, beside
from nodevet.fix.listener import FixListener
from nodevet.fix.plan import plan_file, unplanned
from nodevet.fix.plan.candidates import Rules, Suspected, VettedNode, draft
from nodevet.fix.plan.planner import FixStates, Proposal, make
from nodevet.fix.settings import no_hook
from nodevet.fix.use.failed_elsewhere import failed_elsewhere
from nodevet.fix.use.rollout import rollout_of
from nodevet.fix.use.suspected import suspected
from nodevet.fixing.model import Risk
from nodevet.fleet import Options, visit
from nodevet.fleet.controller import ssh_executor
from nodevet.fleet.executor import WorkError
from nodevet.fleet.protocol.answers import RunningAgent
from nodevet.model import Host, HostReport, Severity, Verdict
from nodevet.resource import Resource
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.stores import NONE
from nodevet.vet.use.vet import collect, vetted

LOOKERS = 32  # hosts that are looked at for a second time at once
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")  # one word of allowed_signers


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a plan. `author` None: who runs this process."""

    fixes: tuple[str, ...] = ()  # these only; none: those that the baselines allow
    now: bool = False
    restart: bool = False
    max_risk: Risk = Risk.REBOOT
    valid: timedelta = timedelta(hours=24)
    window: timedelta = timedelta(hours=24)
    again: bool = False
    force: bool = False  # plan what too many hosts began to fail at once, too
    author: str | None = None
    rollout: Mapping[str, Any] = {}


def rules_of(
    request: PlanRequest,
    context: VetContext,
    runs: Path,
    listener: FixListener,
    *,
    store: str | None = NONE,
) -> Rules:
    """What a plan may contain; `runs`: the folders of earlier runs; `store`: what remembers which
    hosts began to fail at once. Raises UserError."""
    rollout_of(1, request.rollout)
    rules = Rules(
        id=secrets.token_hex(4),
        author=author(request.author),
        now=datetime.now().astimezone(),
        valid=request.valid,
        fixes=_named(request.fixes, context) if request.fixes else None,
        max_risk=request.max_risk,
        nodevet=__version__,
        failed=() if request.again else _failed(runs, request.window, store, listener),
        rollout=lambda nodes: rollout_of(nodes, request.rollout),
    )
    options = _options(context, rules, now=request.now, restart=request.restart)
    suspected = () if request.force else _suspected(rules, context, store, listener)
    return msgspec.structs.replace(rules, options=options, suspected=suspected)


def propose(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    rules: Rules,
    listener: VetListener | None = None,
) -> Proposal:
    """Vet the hosts, and plan what the rules allow of what fails. Raises KeyboardInterrupt."""
    nodes = _vet(hosts, context, options, listener)
    drafted = draft(nodes, context.catalog, rules)
    return make(drafted, rules, _look(hosts, drafted.resources, options))


def try_out(file: Path) -> None:
    """Raises UserError for a file that a plan must not replace, FileError for one it cannot."""
    if file.is_file() and (found := kinds.kind_of(file)) not in (None, DocumentKind.PLAN):
        raise UserError(
            f"{file}: this is {found.value}, and is left as it is; name another with -o"
        )
    files.try_out(file)


def write(file: Path, proposal: Proposal) -> None:
    """Write the plan, and next to it what the files that it changes hold now, for its diff.

    Raises FileError.
    """
    with file_errors(file):
        if not file.exists() or file.is_file():
            try:
                beside(file).hold(proposal.contents)
            except ContentError as error:
                raise FileError(str(error)) from error
        replace(file, plan_file.write(proposal.plan).decode())


def undrained(proposal: Proposal) -> str:
    """Why nodes of the plan could not be drained that must be; empty if they can, or need not."""
    return no_hook([step.risk for step in proposal.plan.steps], proposal.plan.rollout)


def waiting_canary(plan: model.Plan) -> str:
    """Why no host after the canary will begin until the canary's change is in force; empty if
    nothing of the canary is in force later, or the rollout provides for it."""
    later = dict.fromkeys(step.effective for step in plan.steps if step.effective != "now")
    hosts = {step.host for step in plan.steps}
    care = plan.rollout
    if not later or not 0 < care.canary < len(hosts) or care.reboots or care.pending_canary:
        return ""
    return (
        f"some steps take effect after a {' or '.join(later)}: until then the canary proves "
        "nothing, and the other hosts wait for it and for `nodevet apply --resume`; "
        "--verify-reboot reboots the canary, --pending-canary does not wait"
    )


def next_steps(
    proposal: Proposal, context: VetContext, file: Path | None, given: Sequence[str]
) -> list[str]:
    """What to do once this is shown; `file`: where the plan was written; `given`: the words of
    the command line that `apply` takes too."""
    told = []
    if proposal.plan.steps and file:
        apply = shlex.join(["nodevet", "apply", str(file), *given])
        told.append(f"{file} is written; next: nodevet approve {file}, then {apply}")
    elif proposal.plan.steps:
        told.append("nothing is written; to have it approved and applied, plan with -o plan.json")
    if waits := waiting_canary(proposal.plan):
        told.insert(0, waits)
    files = {
        baseline.label: "" if Path(baseline.path).parent == shipped() else baseline.path
        for baseline in context.baselines
    }
    return [*unplanned.ways(proposal, files), *told]


def _failed(
    runs: Path, window: timedelta, store: str | None, listener: FixListener
) -> tuple[Failure, ...]:
    """What failed lately, by the project's runs and by the store, which knows runs kept elsewhere.
    A run or a store that cannot be read is told."""
    now = datetime.now().astimezone()
    found, problems = recent(runs, now, window)
    for problem in problems:
        listener.note(f"cannot tell what failed in an earlier run: {problem}")
    try:
        return (*found, *failed_elsewhere(store, runs, now - window))
    except UserError as error:
        listener.note(f"cannot tell what failed in runs kept elsewhere: {error}")
        return found


def _suspected(
    rules: Rules, context: VetContext, store: str | None, listener: FixListener
) -> tuple[Suspected, ...]:
    """What too many hosts began to fail at once. What cannot be told is said, and costs no plan."""
    checks = {
        wish.check
        for baseline in context.baselines
        for wish in baseline.expectations
        if rules.allow(wish) and wish.check in context.catalog.fixes
    }
    try:
        return suspected(store, checks)
    except UserError as error:
        listener.note(f"cannot tell what many hosts began to fail at once: {error}")
        return ()


def _named(fixes: Sequence[str], context: VetContext) -> frozenset[str]:
    """The fixes of --fix. Raises UserError for one that no baseline asks for, or in shadow."""
    wishes = [wish for baseline in context.baselines for wish in baseline.expectations]
    asked = {wish.check for wish in wishes}
    counted = {wish.check for wish in wishes if wish.severity is not Severity.SHADOW}
    for fix in fixes:
        context.catalog.fix_path(fix)
        if fix in asked - counted:
            raise UserError(f"--fix {fix}: it has severity shadow, and is never planned")
        if fix not in asked:
            raise UserError(f"--fix {fix}: no baseline of this run asks for {fix}")
    return frozenset(fixes)


def _options(context: VetContext, rules: Rules, *, now: bool, restart: bool) -> frozenset[str]:
    """What is asked of the fixes. Raises UserError if no fix takes it."""
    if now and restart:
        raise UserError("--now, --restart: what is restarted is not changed before; give one")
    options = frozenset(name for name, on in (("now", now), ("restart", restart)) if on)
    asked = {
        wish.check
        for baseline in context.baselines
        for wish in baseline.expectations
        if rules.allow(wish) and wish.check in context.catalog.fixes
    }
    for option in options:
        fixes = [fix for name in asked if (fix := context.catalog.fix(name))]
        if not any(option in fix.options for fix in fixes):
            raise UserError(f"--{option}: none of the fixes that may be planned takes it")
    return options


def author(said: str | None) -> str:
    """Who makes the plan. Raises UserError for what cannot be a principal."""
    try:
        name = said or os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UserError("cannot tell who makes the plan; say it with --author") from error
    if not _AUTHOR.fullmatch(name):
        raise UserError(f"--author {name!r}: only letters, digits and . _ @ + - are possible")
    return name


def _vet(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    listener: VetListener | None,
) -> list[VettedNode]:
    """Every host as a check leaves it, with the evidence of those on which something fails."""
    kept: dict[str, Evidence] = {}

    def judged() -> Generator[HostReport]:
        with closing(vetted(visit(hosts, options), by_name, context)) as seen:
            for one in seen:
                fails = any(finding.verdict is Verdict.FAIL for finding in one.report.findings)
                if fails and one.evidence is not None:
                    kept[one.report.host] = one.evidence
                yield one.report

    by_name = {host.name: host for host in hosts}
    run = collect(hosts, judged(), context, fail_on=Severity.INFO, listener=listener)
    if run.interrupted:
        raise KeyboardInterrupt
    baselines = {baseline.label: baseline for baseline in context.baselines}
    return [
        VettedNode(
            report=report,
            evidence=kept.get(report.host),
            baseline=baselines.get(report.baseline),
        )
        for report in run.hosts
    ]


def _look(
    hosts: Sequence[Host], resources: Mapping[str, tuple[Resource, ...]], options: Options
) -> Mapping[str, FixStates]:
    """The state of each host's resources now, and who else manages them."""
    if not resources:
        return {}
    visited = [host for host in hosts if host.name in resources]
    with (
        ssh_executor.SshExecutor(visited, options) as worker,
        ThreadPoolExecutor(min(LOOKERS, len(resources))) as pool,
    ):
        found = pool.map(lambda host: _look_at(worker, host, resources[host]), resources)
        return dict(zip(resources, found, strict=True))


def warning(agent: RunningAgent) -> str:
    """`puppet runs every 30 min: it may set this again`."""
    often = f"every {elapsed(float(agent.every_s))}" if agent.every_s else "on this host"
    return f"{agent.name} runs {often}: it may set this again"


def _look_at(
    worker: ssh_executor.SshExecutor, host: str, resources: Sequence[Resource]
) -> FixStates:
    try:
        worker.open(host)
        try:
            return FixStates(
                seen=worker.look(host, resources),
                owners=worker.managers(host, resources),
                agents=tuple(map(warning, worker.agents(host))),
            )
        finally:
            with suppress(WorkError):
                worker.close(host)
    except WorkError as error:
        return FixStates(why=str(error))
