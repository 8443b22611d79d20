"""How a run of fixes reaches its hosts: stored in its folder for later commands."""

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
    """How the plan's hosts are reached, by these options of `fleet_options`. `inventories`: the
    ones that say so, if known.
    """
    names = {step.host for step in plan.steps}
    plain = {
        key: str(value.resolve()) if isinstance(value, Path) else value
        for key, value in options.items()
    }
    plan_hosts = (
        replace(host, local=_is_this_machine(host, plan)) for host in hosts if host.name in names
    )
    files = None
    if inventories is not None and "-" not in inventories:
        files = tuple(str(Path(name).absolute()) for name in inventories)
    return SavedReach(hosts=tuple(plan_hosts), options=plain, inventories=files)


def _is_this_machine(host: Host, plan: Plan) -> bool:
    """Whether a host of the plan is this machine, in this boot, and root runs nodevet: then it
    needs no SSH. Approvers see only the host's name, so it must be this machine's."""
    planned = plan.nodes.get(host.name)
    is_this_name = is_same_name(host.name, socket.gethostname(), exact=False)
    if planned is None or not is_this_name or host.root != "/" or os.geteuid() != 0:
        return host.local
    this_machine = (_first_line(confirmed.MACHINE_ID), _first_line(BOOT_ID))
    return host.local or (
        all(this_machine) and this_machine == (planned.machine_id, planned.boot_id)
    )


def _first_line(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def reached_before(
    run: RunFolder,
    now: SavedReach | None,
    options: Mapping[str, Any],
    option_names: Collection[str],
) -> SavedReach:
    """How a run reached its hosts, with the options in `option_names` as they are given now.

    `now`: by the inventories of this command line. Raises RunError.
    """
    try:
        saved = run.reach()
    except RunError:
        if now is None:
            raise
        saved = now  # only the options given now count
    overrides = {
        key: value for key, value in options.items() if key in TOLD_AGAIN or key in option_names
    }
    source = now or saved
    return replace(
        saved,
        hosts=source.hosts,
        options={**saved.options, **overrides},
        inventories=source.inventories,
    )
