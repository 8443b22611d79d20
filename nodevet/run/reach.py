"""How hosts are reached: the options of a visit, as a run keeps them and takes them up again."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodevet.fleet import Options
from nodevet.model import Host
from nodevet.remedy.journal.folder import TOLD_ANEW, RunError, RunFolder, SavedReach
from nodevet.remedy.model import Plan
from nodevet.run.asks import asks
from nodevet.run.context import VetContext

PATHS = ("ssh_config", "known_hosts")


def fleet_options(
    *,
    parallel: int,
    connect_timeout: float,
    deadline: float,
    ssh_config: Path | str | None,
    known_hosts: Path | str | None,
    accept_new: bool,
    sudo: bool,
    context: VetContext | None = None,
) -> Options:
    """The options of a visit; `context`: what baselines ask the probe for. Raises AskError."""
    return Options(
        parallel=parallel,
        connect_timeout=connect_timeout,
        deadline=deadline,
        ssh_config=Path(ssh_config) if ssh_config is not None else None,
        known_hosts=Path(known_hosts) if known_hosts is not None else None,
        host_keys="accept-new" if accept_new else "strict",
        sudo=sudo,
        asks=asks(context) if context else {},
    )


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
    again = {key: value for key, value in options.items() if key in TOLD_ANEW or key in given}
    return replace(then, hosts=now.hosts if now else then.hosts, options={**then.options, **again})
