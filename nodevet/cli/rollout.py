"""The options of how a plan is carried out: they are signed with it, `apply` may override them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from nodevet.cli import UserError, options
from nodevet.cli.seconds import Seconds

if TYPE_CHECKING:
    from nodevet.remedy.journal.records import JournalRecord
    from nodevet.remedy.model import Plan
    from nodevet.remedy.settings import Carried, Rollout

SHARES = ("canary", "batch", "max_fail")
DEFAULTS: Mapping[str, Any] = {"canary": "1", "batch": "10", "max_fail": "0"}


def _seconds(least: float) -> dict[str, Any]:
    return {"type": Seconds(least), "metavar": "SECONDS"}


def rollout_options(*, planned: bool) -> Callable[[Any], Any]:
    """The options of `plan`; or, not `planned`, those of `apply`: without a default, the plan's."""

    def option(name: str, default: Any, text: str, **rest: Any) -> Callable[[Any], Any]:
        if not planned:
            return click.option(name, default=None, help=text, **rest)
        return click.option(name, default=default, show_default=default != "", help=text, **rest)

    def flag(name: str, text: str) -> Callable[[Any], Any]:
        if planned:
            return click.option(name, is_flag=True, help=text)
        return click.option(f"{name}/--no-{name.removeprefix('--')}", default=None, help=text)

    nodes: dict[str, Any] = {"metavar": "N|N%"}
    return options.apply(
        option("--canary", "1", "Nodes that go first; a share is rounded up.", **nodes),
        option("--batch", "10", "Nodes at a time after that, as a sliding window.", **nodes),
        option(
            "--max-fail",
            "0",
            "Nodes that may fail; at one more, no further node is begun.",
            **nodes,
        ),
        option("--pause", 0, "Between the canary and the rest.", **_seconds(0)),
        option(
            "--settle",
            5,
            "After which a setting is looked at once more, and must still be there.",
            **_seconds(0),
        ),
        option(
            "--drain-hook",
            "",
            "Run with a host's name as its last argument before anything of risk drain or reboot "
            "is done there; 0 means that the host is drained. No shell.",
            metavar="CMD",
        ),
        option(
            "--holders",
            "",
            "Programs or services that may hold the GPUs, with commas between: they are no use of "
            "them to wait for. Known monitoring clients need not be named.",
            metavar="NAMES",
        ),
        flag(
            "--reboot",
            "Reboot each node that was changed, and verify it after that, too. It takes "
            "approvals for risk reboot, and --drain-hook.",
        ),
        flag("--verify-reboot", "The same, on the canary alone."),
        option(
            "--reboot-timeout",
            900,
            "For a node to be back; else its outcome is unknown. Servers with many GPUs take long.",
            **_seconds(1),
        ),
        option(
            "--boot-settle",
            120,
            "After systemd has started everything: what the check does not call right by then is "
            "put back.",
            **_seconds(0),
        ),
    )


settle = click.option(
    "--settle",
    default=None,
    help="After which what was put back is looked at once more.  [default: as the run]",
    **_seconds(0),
)
drain_hook = click.option(
    "--drain-hook",
    default=None,
    metavar="CMD",
    help="Instead of the run's, before anything of risk drain or reboot is put back.",
)
override = click.option(
    "--override",
    is_flag=True,
    help="Let the options above, or another version of nodevet, be other than those that were "
    "approved with the plan. The report and the journal say which.",
)


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a rollout that were given, and all other options."""
    from nodevet.remedy.settings import NAMES

    mine = {name: value for name, value in given.items() if name in NAMES and value is not None}
    return mine, {name: value for name, value in given.items() if name not in NAMES}


def rollout_of(nodes: int, given: Mapping[str, Any]) -> "Rollout":
    """The rollout of a plan over so many nodes. Raises UserError."""
    from nodevet.remedy.settings import Rollout

    found = Rollout(**{**given, **_shares(nodes, {**DEFAULTS, **given})})
    if found.reboots and not found.drain_hook.strip():
        raise UserError("a reboot needs --drain-hook, which says that a node is drained")
    return found


def carried_out(
    plan: "Plan", records: "tuple[JournalRecord, ...]", given: Mapping[str, Any], *, override: bool
) -> "Carried":
    """How `apply` carries out a plan: as it says, or as the run of these records was carried out,
    but for what the command line gives. Raises UserError."""
    from nodevet import __version__
    from nodevet.remedy import settings

    nodes = len({step.host for step in plan.steps})
    asked = {**given, **{name: _shares(nodes, given)[name] for name in SHARES if name in given}}
    try:
        found = settings.carried(
            (plan.rollout, plan.nodevet), kept(records), asked, __version__, override=override
        )
    except settings.OverrideError as error:
        raise UserError(str(error)) from error
    if missing := settings.no_hook([step.risk for step in plan.steps], found.rollout):
        raise UserError(missing)
    return found


def kept(records: "tuple[JournalRecord, ...]") -> "tuple[Rollout, str] | None":
    """How an earlier try of a run was carried out; None where there was none. Raises UserError."""
    from nodevet.remedy import settings
    from nodevet.remedy.journal.records import RunBegin

    for record in reversed(records):
        try:
            if isinstance(record, RunBegin) and (found := settings.kept(record.options)):
                return found
        except (ValueError, msgspec.ValidationError) as error:
            raise UserError(
                f"the run's journal does not say how it was carried out: {error}; name a new run"
            ) from error
    return None


def of_rollback(
    plan: "Plan", records: "tuple[JournalRecord, ...]", settle: float | None, drain_hook: str | None
) -> "Rollout":
    """The times and the hook of a run, but for what a rollback was given. Raises UserError."""
    then = kept(records)
    settings = then[0] if then else plan.rollout
    return msgspec.structs.replace(
        settings,
        settle=settings.settle if settle is None else settle,
        drain_hook=settings.drain_hook if drain_hook is None else drain_hook,
        reboot=False,
        verify_reboot=False,
    )


def _shares(nodes: int, given: Mapping[str, Any]) -> dict[str, int]:
    """Nodes from `4` or `10%`. Raises UserError."""
    from nodevet.remedy.rollout import limits

    texts = {name: str(given.get(name, DEFAULTS[name])) for name in SHARES}
    try:
        found = limits.limits(nodes, **texts)
    except ValueError as error:
        raise UserError(str(error)) from error
    return {name: getattr(found, name) for name in SHARES}
