"""How a run of fixes reached its hosts: kept in its folder, and taken up again."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodevet.model import Host
from nodevet.remedy.journal.folder import TOLD_AGAIN, RunError, RunFolder, SavedReach
from nodevet.remedy.model import Plan


def reached_now(plan: Plan, hosts: Sequence[Host], options: Mapping[str, Any]) -> SavedReach:
    """How the plan's hosts are reached, by these options of `fleet_options`."""
    names = {step.host for step in plan.steps}
    plain = {
        key: str(value.resolve()) if isinstance(value, Path) else value
        for key, value in options.items()
    }
    return SavedReach(hosts=tuple(host for host in hosts if host.name in names), options=plain)


def reached_before(
    run: RunFolder, now: SavedReach | None, options: Mapping[str, Any], given: Collection[str]
) -> SavedReach:
    """How a run reached its hosts, except for the options that are `given` again.

    `now`: by an inventory that is named again. Raises RunError.
    """
    try:
        then = run.reach()
    except RunError:
        if now is None:
            raise
        then = now  # what is said now alone says how
    again = {key: value for key, value in options.items() if key in TOLD_AGAIN or key in given}
    return replace(then, hosts=now.hosts if now else then.hosts, options={**then.options, **again})
