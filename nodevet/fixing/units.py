"""What fixes of services share: a unit as systemd shows it, and how to make it run."""

import re
from collections.abc import Sequence

from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import Unit, Units
from nodevet.fixing.model import FixError
from nodevet.resource.unit import SetUnit

OBSTACLES = {
    "not-found": "it does not exist; install its package, or check its name",
    "masked": "it is masked on purpose; run `systemctl unmask` if it should run",
}
"""Why a unit in this load state cannot be started or enabled."""

NEEDED = re.compile(
    r"(ssh|sshd)(@.*)?\.(service|socket)|dbus(-broker)?\.(service|socket)|network(ing)?\.service"
    r"|NetworkManager.*\.service|wicked.*\.service"
)
"""Without these units the node may be unreachable."""

RUNS = ("active", "reloading")
STANDS = (*RUNS, "inactive", "failed")
"""Active states that do not change by themselves."""


def unit_of(evidence: Evidence, name: str) -> Unit:
    """A unit as systemd shows it. Raises FixError if a part of it was not read."""
    section = evidence[Units]
    if section.data is None:
        raise FixError(f"services: {section.why}")
    if section.data.units is None:
        raise FixError(f"units: {section.data.why('units')}")
    unit = next((unit for unit in section.data.units if unit.name == name), None)
    if unit is None:
        raise FixError(f"{name}: {NOT_ASKED}")
    for field in ("load_state", "active_state", "file_state"):
        if getattr(unit, field) is None:
            raise FixError(f"{name}: {field}: {unit.why(field)}")
    return unit


def first_existing_unit(evidence: Evidence, names: Sequence[str]) -> Unit:
    """The first of these units that exists, or the first of all. Raises FixError as `unit_of`."""
    units = [unit_of(evidence, name) for name in names]
    return next((unit for unit in units if unit.load_state != "not-found"), units[0])


def start_unit(unit: Unit) -> SetUnit:
    """The action that enables a unit and starts it, or restarts it if it runs.

    Raises FixError if systemd cannot do it, or if the unit is starting or stopping just now.
    """
    if unit.load_state != "loaded":
        why = OBSTACLES.get(unit.load_state or "", "systemd could not load it")
        raise FixError(f"{unit.name}: {why}")
    if unit.active_state not in STANDS:
        raise FixError(f"{unit.name} is {unit.active_state}; plan again when it has finished")
    if unit.file_state not in ("enabled", "disabled"):
        state = unit.file_state or "without a file"
        raise FixError(f"{unit.name} is {state}: `systemctl` cannot enable it")
    enable = True if unit.file_state == "disabled" else None
    return SetUnit(name=unit.name, enabled=enable, running=True, restart=True)
