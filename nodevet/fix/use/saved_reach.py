"""How a run of fixes reached its hosts: kept in its folder, and taken up again."""

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodevet.checking.identity import is_same_name
from nodevet.fix.journal.folder import TOLD_AGAIN, RunError, RunFolder, SavedReach
from nodevet.fix.model import Plan
from nodevet.fix.use import confirmed
from nodevet.model import Host

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def reached_now(
    plan: Plan,
    hosts: Sequence[Host],
    options: Mapping[str, Any],
    inventories: Sequence[str] | None = None,
) -> SavedReach:
    """How the plan's hosts are reached, by these options of `fleet_options`. `inventories`: which
    say so, if that is known."""
    names = {step.host for step in plan.steps}
    plain = {
        key: str(value.resolve()) if isinstance(value, Path) else value
        for key, value in options.items()
    }
    found = (replace(host, local=_at_hand(host, plan)) for host in hosts if host.name in names)
    files = None
    if inventories is not None and "-" not in inventories:
        files = tuple(str(Path(name).absolute()) for name in inventories)
    return SavedReach(hosts=tuple(found), options=plain, inventories=files)


def _at_hand(host: Host, plan: Plan) -> bool:
    """Whether a host of the plan is this machine, in this boot, and its root runs nodevet: then it
    takes no SSH. Approvers see the host's name alone, so it must be this machine's."""
    planned = plan.nodes.get(host.name)
    named = is_same_name(host.name, socket.gethostname(), exact=False)
    if planned is None or not named or host.root != "/" or os.geteuid() != 0:
        return host.local
    here = (_line(confirmed.MACHINE_ID), _line(BOOT_ID))
    return host.local or (all(here) and here == (planned.machine_id, planned.boot_id))


def _line(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


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
    told = now or then
    return replace(
        then, hosts=told.hosts, options={**then.options, **again}, inventories=told.inventories
    )
