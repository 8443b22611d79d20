"""How a plan is carried out: as it says, or as its run began, and what may be said otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodevet import __version__
from nodevet.base.errors import UserError
from nodevet.fix import settings
from nodevet.fix.journal import records
from nodevet.fix.journal.records import JournalRecord
from nodevet.fix.model import Plan
from nodevet.fix.rollout import limits
from nodevet.fix.settings import Carried, OverrideError, Rollout

SHARES = ("canary", "batch", "max_fail")
DEFAULTS: Mapping[str, Any] = {"canary": "1", "batch": "10", "max_fail": "0"}


def rollout_of(nodes: int, given: Mapping[str, Any]) -> Rollout:
    """The rollout of a plan over so many nodes. Raises UserError."""
    found = Rollout(**{**given, **_shares(nodes, {**DEFAULTS, **given})})
    if found.reboots and not found.drain_hook.strip():
        raise UserError("a reboot needs --drain-hook, which says that a node is drained")
    _some_canary(found)
    return found


def carried_out(
    plan: Plan,
    kept: Sequence[JournalRecord],
    given: Mapping[str, Any],
    *,
    override: bool,
    hosts: int | None = None,
) -> Carried:
    """How a plan is carried out: as it says, or as the run of these records was carried out,
    except for what is given now. Raises UserError.

    `hosts`: so many of the plan's are chosen. A share is one of these, and no more of them may fail
    than in proportion, unless that is given.
    """
    everything = len({step.host for step in plan.steps})
    nodes = everything if hosts is None else hosts
    asked = {**given, **{name: _shares(nodes, given)[name] for name in SHARES if name in given}}
    try:
        found = settings.carried(
            (plan.rollout, plan.nodevet), _kept(kept), asked, __version__, override=override
        )
    except OverrideError as error:
        raise UserError(str(error)) from error
    spare = found.rollout.max_fail * nodes // max(1, everything)
    if nodes < everything and "max_fail" not in given and not kept:
        found = settings.with_fewer(plan.rollout, found, spare)
    _some_canary(found.rollout)
    if missing := settings.no_hook([step.risk for step in plan.steps], found.rollout):
        raise UserError(missing)
    return found


def _some_canary(rollout: Rollout) -> None:
    """Raises UserError if only the canary is to be rebooted, and there is none."""
    if rollout.verify_reboot and not rollout.reboot and rollout.canary == 0:
        raise UserError(
            "--verify-reboot reboots the canary, and --canary is 0: no node would be rebooted; "
            "give --canary 1, or --reboot for all"
        )


def of_rollback(plan: Plan, kept: Sequence[JournalRecord], given: Mapping[str, Any]) -> Rollout:
    """The times and the hook of a run, except for what a rollback was given. Raises UserError."""
    then = _kept(kept)
    found = then[0] if then else plan.rollout
    return msgspec.structs.replace(found, **{**given, "reboot": False, "verify_reboot": False})


def _kept(kept: Sequence[JournalRecord]) -> tuple[Rollout, str] | None:
    """How an earlier try of a run was carried out; None if there was none. Raises UserError."""
    for record in reversed(kept):
        try:
            if isinstance(record, records.RunBegin) and (found := settings.kept(record.options)):
                return found
        except (ValueError, msgspec.ValidationError) as error:
            raise UserError(
                f"the run's journal does not say how it was carried out: {error}; name a new run"
            ) from error
    return None


def _shares(nodes: int, given: Mapping[str, Any]) -> dict[str, int]:
    """Nodes from `4` or `10%`. Raises UserError."""
    texts = {name: str(given.get(name, DEFAULTS[name])) for name in SHARES}
    try:
        found = limits.limits(nodes, **texts)
    except ValueError as error:
        raise UserError(str(error)) from error
    return {name: getattr(found, name) for name in SHARES}
