"""Start, stop, enable and disable systemd units, as expected.

**Now** `systemctl start` or `stop`, and `systemctl reset-failed` for a failed unit that must be
stopped; each unit is one step.

**At every boot** `systemctl enable` or `disable`: systemd's own links keep the setting.

**Risk** live for starting, enabling or disabling units. Stopping a unit needs a drained node,
because nodevet cannot know what depends on it.

**Rollback** restores the unit's earlier state: enabled or not, running or not.

**What it cannot do.** It does not install a unit that does not exist. It does not unmask a masked
unit, because someone masked it on purpose. A static unit can be neither enabled nor disabled. The
fix never stops or disables units that nodevet needs to reach the node (sshd, D-Bus, the network).
`Also=` in a unit's file may enable other units with it.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.services import ACTIVE, Params
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import Unit as Shown
from nodevet.evidence.services import Units
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.fixing.units import NEEDED, OBSTACLES
from nodevet.model import Finding
from nodevet.resource import Actions, Resource, RunCommand
from nodevet.resource.unit import SetUnit

KINDS = (".service", ".socket", ".timer", ".path")


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for each unit that fails; see `FIX`."""
    section = evidence[Units].data
    units = (section.units if section else None) or ()
    by_name = {unit.name: unit for unit in units}
    changes, refused = [], []
    for finding in failed:
        name = finding.subject.id
        try:
            changes.append(change(finding, by_name.get(name), params))
        except FixError as error:
            refused.append(f"{name}: {error}")
    yield from with_refusals(changes, refused)


def change(finding: Finding, unit: Shown | None, params: Params) -> PlannedChange:
    """The change of one unit. Raises FixError."""
    if unit is None:
        raise FixError(NOT_ASKED)
    if unit.name.startswith("systemd-") or not unit.name.endswith(KINDS):
        raise FixError("nodevet does not change targets, mounts and systemd's own units")
    running = expected_state(unit.name, params.running, params.stopped)
    enabled = expected_state(unit.name, params.enabled, params.disabled)
    states = (
        ("load_state", unit.load_state),
        ("active_state", unit.active_state),
        ("file_state", unit.file_state),
    )
    for field, value in states:
        if value is None:
            raise FixError(f"{field}: {unit.why(field)}")
    runs, has_failed = unit.active_state in ACTIVE, unit.active_state == "failed"
    if not runs and unit.active_state not in ("inactive", "failed"):
        raise FixError(f"it is {unit.active_state}; plan again when it has finished")
    if unit.load_state != "loaded":
        raise FixError(OBSTACLES.get(unit.load_state or "", "systemd could not load it"))
    if enabled is not None and unit.file_state not in ("enabled", "disabled"):
        raise FixError(f"it is {unit.file_state or 'without a file'}: `systemctl` cannot change it")
    start = running if running is not runs else None
    enable = enabled if enabled is not (unit.file_state == "enabled") else None
    reset = running is False and has_failed
    if start is None and enable is None and not reset:
        raise FixError("the finding does not come from this evidence")
    if (start is False or enable is False) and NEEDED.fullmatch(unit.name):
        raise FixError("the node may be unreachable without it")
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(finding.subject.label,),
        actions=actions(unit.name, running=start, enabled=enable, reset=reset),
        resources=(Resource(kind="unit", name=unit.name),),
        risk=Risk.DRAIN if start is False else Risk.LIVE,
    )


def expected_state(name: str, yes: Sequence[str], no: Sequence[str]) -> bool | None:
    return True if name in yes else False if name in no else None


def actions(name: str, *, running: bool | None, enabled: bool | None, reset: bool) -> Actions:
    changed = running is not None or enabled is not None
    return (
        *([SetUnit(name=name, enabled=enabled, running=running)] if changed else []),
        *([RunCommand(words=("systemctl", "reset-failed", "--", name))] if reset else []),
    )


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("kernel_modules",))
