"""Plan: what fixes would change on hosts that fail, and who else manages it there."""

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
from nodevet.base.project import Project
from nodevet.baseline.library import shipped_folder
from nodevet.document import kinds
from nodevet.document.kinds import DocumentKind
from nodevet.evidence.document import Evidence
from nodevet.fix import model
from nodevet.fix.approval.judge import plan_problems
from nodevet.fix.approval.policy import SIGNERS, PolicyError, load
from nodevet.fix.events import FixListener
from nodevet.fix.journal.attempts import Failure, recent_failures
from nodevet.fix.journal.contents import ContentError, contents_beside
from nodevet.fix.plan import plan_file, unplanned
from nodevet.fix.plan.candidates import Rules, Suspected, VettedNode, draft
from nodevet.fix.plan.planner import FixStates, Proposal, make
from nodevet.fix.settings import missing_hook
from nodevet.fix.use.from_store import failed_elsewhere, suspected_checks
from nodevet.fix.use.rollout import rollout_of
from nodevet.fixing.model import Risk
from nodevet.fleet import Options
from nodevet.fleet.controller import ssh_executor
from nodevet.fleet.executor import WorkError
from nodevet.fleet.protocol.answers import RunningAgent
from nodevet.model import Host, HostReport, Severity, Verdict
from nodevet.resource import Resource
from nodevet.vet.use.beside import visit_beside
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reach import planned_alone
from nodevet.vet.use.stores import NONE
from nodevet.vet.use.vet import collect, vetted

LOOKERS = 32  # hosts that are looked at for a second time at once
_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")  # one word of allowed_signers


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a plan. `author` None: the user of this process."""

    fixes: tuple[str, ...] = ()  # these only; none: those that the baselines allow
    now: bool = False
    restart: bool = False
    max_risk: Risk = Risk.REBOOT
    valid: timedelta = timedelta(hours=24)
    window: timedelta = timedelta(hours=24)
    again: bool = False
    force: bool = False  # also plan what too many hosts began to fail at once
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
    """What a plan may contain; `runs`: folder of earlier runs; `store`: knows which hosts began to
    fail at once. Raises UserError."""
    reboots = rollout_of(1, request.rollout).reboots_each
    rules = Rules(
        id=secrets.token_hex(4),
        author=author(request.author),
        now=datetime.now().astimezone(),
        valid=request.valid,
        fixes=_fixes_named(request.fixes, context) if request.fixes else None,
        max_risk=request.max_risk,
        nodevet=__version__,
        failed=() if request.again else _recent_failures(runs, request.window, store, listener),
        rollout=lambda nodes: rollout_of(nodes, request.rollout),
    )
    options = _options(context, rules, now=request.now, restart=request.restart)
    options |= {"reboot"} if reboots else set()
    suspected = () if request.force else _suspected_checks(rules, context, store, listener)
    return msgspec.structs.replace(rules, options=options, suspected=suspected)


def propose(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    rules: Rules,
    listener: VetListener | None = None,
) -> Proposal:
    """Vet the hosts, and plan the fixes that the rules allow. Raises KeyboardInterrupt."""
    nodes = _vet(hosts, context, planned_alone(options, context), listener)
    drafted = draft(nodes, context.catalog, rules)
    return make(drafted, rules, _look(hosts, drafted.resources, options))


def try_out(file: Path) -> None:
    """Raises UserError for a file that a plan must not replace, FileError if it cannot."""
    if file.is_file() and (kind := kinds.kind_of(file)) not in (None, DocumentKind.PLAN):
        raise UserError(f"{file}: this is {kind.value}; name another file with -o")
    files.try_out(file)


def write(file: Path, proposal: Proposal) -> None:
    """Write the plan, and next to it the current contents of files that it changes, for its diff.

    Raises FileError.
    """
    with file_errors(file):
        if not file.exists() or file.is_file():
            try:
                contents_beside(file).hold(proposal.contents)
            except ContentError as error:
                raise FileError(str(error)) from error
        replace(file, plan_file.write(proposal.plan).decode())


def drain_problem(proposal: Proposal) -> str:
    """Why nodevet cannot drain the nodes of the plan that need it; empty if it can or none does."""
    return missing_hook([step.risk for step in proposal.plan.steps], proposal.plan.rollout)


def approval_problems(plan: model.Plan, project: Project) -> list[str]:
    """Why nobody can approve the plan as it is; empty in a project without allowed_signers, since
    another project may approve it."""
    if not plan.steps or not os.path.lexists(project.folder / SIGNERS):
        return []
    try:
        return plan_problems(plan, load(project), datetime.now().astimezone())
    except PolicyError as error:
        return str(error).splitlines()


def canary_delay(plan: model.Plan) -> str:
    """Why the other hosts will wait until the canary's change is in force; empty if it is in force
    at once, or if the rollout reboots or allows a pending canary."""
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
    proposal: Proposal, context: VetContext, file: Path | None, apply_options: Sequence[str]
) -> list[str]:
    """What to do next; `file`: of the written plan; `apply_options`: words of this command line
    that `apply` needs too."""
    lines = []
    if proposal.plan.steps and file:
        apply = shlex.join(["nodevet", "apply", str(file), *apply_options])
        lines.append(f"{file} is written; next: nodevet approve {file}, then {apply}")
    elif proposal.plan.steps:
        lines.append("nothing is written; to approve and apply it, plan with -o plan.json")
    if canary_note := canary_delay(proposal.plan):
        lines.insert(0, canary_note)
    files = {
        baseline.label: "" if Path(baseline.path).parent == shipped_folder() else baseline.path
        for baseline in context.baselines
    }
    return [*unplanned.suggestions(proposal, files), *lines]


def _recent_failures(
    runs: Path, window: timedelta, store: str | None, listener: FixListener
) -> tuple[Failure, ...]:
    """Recent failures, from the project's runs and from the store, which knows runs of other
    folders. Notes a run or a store that cannot be read."""
    now = datetime.now().astimezone()
    failures, problems = recent_failures(runs, now, window)
    for problem in problems:
        listener.note(f"cannot tell what failed in an earlier run: {problem}")
    try:
        return (*failures, *failed_elsewhere(store, runs, now - window))
    except UserError as error:
        listener.note(f"cannot tell what failed in runs of other folders: {error}")
        return failures


def _suspected_checks(
    rules: Rules, context: VetContext, store: str | None, listener: FixListener
) -> tuple[Suspected, ...]:
    """The checks that too many hosts began to fail at once. Notes a store that cannot be read."""
    checks = {
        wish.check
        for baseline in context.baselines
        for wish in baseline.expectations
        if rules.allow(wish) and wish.check in context.catalog.fixes
    }
    try:
        return suspected_checks(store, checks)
    except UserError as error:
        listener.note(f"cannot tell which checks many hosts began to fail at once: {error}")
        return ()


def _fixes_named(fixes: Sequence[str], context: VetContext) -> frozenset[str]:
    """The fixes of --fix. Raises UserError for one that no baseline expects, or only in shadow."""
    wishes = [wish for baseline in context.baselines for wish in baseline.expectations]
    expected = {wish.check for wish in wishes}
    counted = {wish.check for wish in wishes if wish.severity is not Severity.SHADOW}
    for fix in fixes:
        context.catalog.fix_path(fix)
        if fix in expected - counted:
            raise UserError(f"--fix {fix}: it has severity shadow, so it is never planned")
        if fix not in expected:
            raise UserError(f"--fix {fix}: no baseline of this run asks for {fix}")
    return frozenset(fixes)


def _options(context: VetContext, rules: Rules, *, now: bool, restart: bool) -> frozenset[str]:
    """The options of fixes. Raises UserError if no fix takes one."""
    if now and restart:
        raise UserError("--now and --restart exclude each other; give one")
    options = frozenset(name for name, on in (("now", now), ("restart", restart)) if on)
    checks = {
        wish.check
        for baseline in context.baselines
        for wish in baseline.expectations
        if rules.allow(wish) and wish.check in context.catalog.fixes
    }
    for option in options:
        fixes = [fix for name in checks if (fix := context.catalog.fix(name))]
        if not any(option in fix.options for fix in fixes):
            raise UserError(f"--{option}: no fix that may be planned has this option")
    return options


def author(name_option: str | None) -> str:
    """The author of the plan. Raises UserError for a name that cannot be a principal."""
    try:
        name = name_option or os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UserError("the author of the plan is unknown; name them with --author") from error
    if not _AUTHOR.fullmatch(name):
        raise UserError(f"--author {name!r}: only letters, digits and . _ @ + - are allowed")
    return name


def _vet(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    listener: VetListener | None,
) -> list[VettedNode]:
    """Every host after a check, with its evidence if something fails."""
    evidence_by_host: dict[str, Evidence] = {}

    def judged() -> Generator[HostReport]:
        with closing(vetted(visit_beside(hosts, options, context), by_name, context)) as reports:
            for host in reports:
                fails = any(finding.verdict is Verdict.FAIL for finding in host.report.findings)
                if fails and host.evidence is not None:
                    evidence_by_host[host.report.host] = host.evidence
                yield host.report

    by_name = {host.name: host for host in hosts}
    run = collect(hosts, judged(), context, fail_on=Severity.INFO, listener=listener)
    if run.interrupted:
        raise KeyboardInterrupt
    baselines = {baseline.label: baseline for baseline in context.baselines}
    return [
        VettedNode(
            report=report,
            evidence=evidence_by_host.get(report.host),
            baseline=baselines.get(report.baseline),
        )
        for report in run.hosts
    ]


def _look(
    hosts: Sequence[Host], resources: Mapping[str, tuple[Resource, ...]], options: Options
) -> Mapping[str, FixStates]:
    """The current state of each host's resources, and their other managers."""
    if not resources:
        return {}
    visited = [host for host in hosts if host.name in resources]
    with (
        ssh_executor.SshExecutor(visited, options) as worker,
        ThreadPoolExecutor(min(LOOKERS, len(resources))) as pool,
    ):
        states = pool.map(lambda host: _look_at(worker, host, resources[host]), resources)
        return dict(zip(resources, states, strict=True))


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
