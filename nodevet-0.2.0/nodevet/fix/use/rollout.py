"""How nodevet applies a plan: as planned, or as its run began, with overrides."""

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


def rollout_of(nodes: int, overrides: Mapping[str, Any]) -> Rollout:
    """The rollout of a plan for this number of nodes. Raises UserError."""
    rollout = Rollout(**{**overrides, **_shares(nodes, {**DEFAULTS, **overrides})})
    if rollout.reboots and not rollout.drain_hook.strip():
        raise UserError("a reboot needs --drain-hook, which says that a node is drained")
    _require_canary(rollout)
    return rollout


def carried_out(
    plan: Plan,
    records: Sequence[JournalRecord],
    overrides: Mapping[str, Any],
    *,
    override: bool,
    hosts: int | None = None,
) -> Carried:
    """How nodevet applies a plan: as planned, or as the run of these records, with `overrides`.
    Raises UserError.

    `hosts`: the number of chosen hosts. Shares refer to them, and the number that may fail is
    reduced in proportion, unless `overrides` has it.
    """
    planned_hosts = len({step.host for step in plan.steps})
    nodes = planned_hosts if hosts is None else hosts
    values = {
        **overrides,
        **{name: _shares(nodes, overrides)[name] for name in SHARES if name in overrides},
    }
    try:
        terms = settings.terms_of_run(
            (plan.rollout, plan.nodevet),
            _earlier_rollout(records),
            values,
            __version__,
            override=override,
        )
    except OverrideError as error:
        raise UserError(str(error)) from error
    spare = terms.rollout.max_fail * nodes // max(1, planned_hosts)
    if nodes < planned_hosts and "max_fail" not in overrides and not records:
        terms = settings.with_max_fail(plan.rollout, terms, spare)
    _require_canary(terms.rollout)
    if problem := settings.missing_hook([step.risk for step in plan.steps], terms.rollout):
        raise UserError(problem)
    return terms


def _require_canary(rollout: Rollout) -> None:
    """Raises UserError if only the canary would be rebooted, and there is none."""
    if rollout.verify_reboot and not rollout.reboots_each and rollout.canary == 0:
        raise UserError(
            "--verify-reboot reboots the canary, and --canary is 0: no node would be rebooted; "
            "give --canary 1, or --reboot for all"
        )


def of_rollback(
    plan: Plan, records: Sequence[JournalRecord], overrides: Mapping[str, Any]
) -> Rollout:
    """The times and the hook of a run, with `overrides` of the rollback. Raises UserError."""
    previous = _earlier_rollout(records)
    rollout = previous[0] if previous else plan.rollout
    return msgspec.structs.replace(
        rollout, **{**overrides, "reboot": False, "verify_reboot": False, "power_cycle": False}
    )


def _earlier_rollout(kept: Sequence[JournalRecord]) -> tuple[Rollout, str] | None:
    """The rollout of an earlier try of the run; None if there was none. Raises UserError."""
    for record in reversed(kept):
        try:
            if isinstance(record, records.RunBegin) and (
                rollout := settings.rollout_of_options(record.options)
            ):
                return rollout
        except (ValueError, msgspec.ValidationError) as error:
            raise UserError(
                f"the run's journal does not say how it was applied: {error}; name a new run"
            ) from error
    return None


def _shares(nodes: int, overrides: Mapping[str, Any]) -> dict[str, int]:
    """Nodes from `4` or `10%`. Raises UserError."""
    texts = {name: str(overrides.get(name, DEFAULTS[name])) for name in SHARES}
    try:
        counts = limits.limits(nodes, **texts)
    except ValueError as error:
        raise UserError(str(error)) from error
    return {name: getattr(counts, name) for name in SHARES}
