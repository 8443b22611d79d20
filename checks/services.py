"""The systemd units in the baseline are running or stopped, enabled or disabled, as expected.

**Why it matters.** Without nvidia-persistenced every job waits for the driver to initialise;
without nvidia-fabricmanager no CUDA program starts on a node with NVSwitch; without DCGM there is
no GPU monitoring. A service that runs but is not enabled does not run after the next reboot.

**Read from** `systemctl show`: LoadState, ActiveState, SubState and UnitFileState of the units
that the baseline names.

**Verdicts.** `running` means active; a failed unit fails both `running` and `stopped`. `enabled`
means that the unit starts after a reboot: enabled-runtime fails, and so does a static unit, which
only other units start. `disabled` accepts disabled and masked. A unit that does not exist is
neither running nor enabled. Without systemd all units are unknown. A unit is also unknown while it
is starting or stopping, unless it keeps restarting, and while it is stopped and dpkg or rpm is at
work: these states pass by themselves.

**To fix it** run `systemctl enable --now UNIT` or `systemctl disable --now UNIT`; if a unit failed,
`journalctl -b -u UNIT` shows why. When a package is installed, presets decide whether its units are
enabled; unmask a masked unit first.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta
from msgspec.structs import force_setattr

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import each_named, judge_each, reads_of
from nodevet.evidence.across import DRIVER_FAULT
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import UNIT_NAME, Unit, Units
from nodevet.model import Area, Check, CheckParams, Finding, NeededAction, Subject, Value, Verdict

LISTS = ("running", "stopped", "enabled", "disabled")
OPPOSITES = (("running", "stopped"), ("enabled", "disabled"))
ACTIVE = ("active", "reloading")
CHANGING = {"activating": "it is starting", "deactivating": "it is stopping"}
RESTARTS = "auto-restart"  # the SubState of a unit that failed and is started again and again
UNCLEAR = (
    "",
    "generated",
    "transient",
    "alias",
    "bad",
)  # do not show whether the unit starts at boot

UNIT = rf"^{UNIT_NAME}\.(service|socket|timer|target|path|mount|swap)$"


def distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


Name = Annotated[
    str,
    Meta(pattern=UNIT, title="a systemd unit with its suffix, such as nvidia-persistenced.service"),
]


OF_THE_DRIVER = ("nvidia-fabricmanager.service", "nvidia-persistenced.service")
"""Units that need the driver: without it they end at once."""


class Params(CheckParams):
    """`services: {running: [nvidia-persistenced.service], enabled: [nvidia-persistenced.service]}`
    or `services: {stopped: [tuned.service], disabled: [tuned.service]}`"""

    running: tuple[Name, ...] = ()
    enabled: tuple[Name, ...] = ()
    """Units that start at boot."""
    disabled: tuple[Name, ...] = ()
    stopped: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        for field in LISTS:
            force_setattr(self, field, distinct_names(getattr(self, field)))
        for one, other in OPPOSITES:
            both = sorted(set(getattr(self, one)) & set(getattr(self, other)))
            if both:
                raise ValueError(f"{', '.join(both)}: listed in both {one} and {other}")

    @property
    def units(self) -> tuple[str, ...]:
        return distinct_names(tuple(name for field in LISTS for name in getattr(self, field)))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Units]
    units = each_named(section, params.units, label="services", listed="units", kind="unit")
    busy = (section.data.busy if section.data else None) or ""
    yield from judge_each(units, lambda unit: judge_unit(*unit, params, busy))


def judge_unit(subject: Subject, unit: Unit, params: Params, busy: str) -> Iterator[Finding]:
    aspects = []
    if unit.name in params.running:
        aspects.append(state(unit, "running", busy))
    if unit.name in params.stopped:
        aspects.append(state(unit, "stopped", busy))
    if unit.name in params.enabled:
        aspects.append(boot(unit, "enabled"))
    if unit.name in params.disabled:
        aspects.append(boot(unit, "disabled"))
    differs = {aspect.name for aspect in aspects if aspect.verdict is Verdict.FAIL}
    needs_it = unit.name in OF_THE_DRIVER and differs == {"running"}
    yield from aspect_findings(
        subject,
        aspects,
        advice=lambda bad: advice(unit),
        listed=True,
        cause=DRIVER_FAULT if needs_it else UNSET,
    )


def state(unit: Unit, expected: str, busy: str) -> Aspect:
    """Whether the unit runs, or is stopped. `busy`: why it may be stopped for a moment."""
    actual = unit.active_state
    if not actual:
        return unread_aspect(unit, "active_state")
    if actual in CHANGING and unit.sub_state != RESTARTS:
        return unknown_aspect(expected, f"{actual} ({unit.sub_state}): {CHANGING[actual]}")
    if actual == "inactive" and expected == "running" and busy and not is_absent(unit):
        return unknown_aspect(expected, f"inactive, and {busy}")
    if actual == "inactive" and is_absent(unit):
        shown = "not there"
    elif unit.sub_state and unit.sub_state != actual:
        shown = f"{actual} ({unit.sub_state})"
    else:
        shown = actual
    right = actual in (ACTIVE if expected == "running" else ("inactive",))
    return aspect_if(expected, right, expected=expected, actual=shown)


def boot(unit: Unit, expected: str) -> Aspect:
    """Whether the unit starts at boot, or does not."""
    actual = unit.file_state
    if actual is None:
        return unread_aspect(unit, "file_state")
    if not actual and is_absent(unit):
        return aspect_if(expected, expected == "disabled", expected=expected, actual="not there")
    if actual in UNCLEAR:
        why = f"file_state: {actual or 'none'} does not show whether it starts at boot"
        return unknown_aspect(expected, why)
    right = actual in (("enabled",) if expected == "enabled" else ("disabled", "masked"))
    return aspect_if(expected, right, expected=expected, actual=actual)


def is_absent(unit: Unit) -> bool:
    return unit.load_state == "not-found"


RESTARTED = "it keeps restarting: "
INSTALL = "install its package, or correct the name"
MASKED = "it is masked, usually on purpose"
NOT_LOADED = "systemd could not load it"
UNTIL_BOOT = "enabled only until the next boot"
STATIC = "only other units start a static unit: it cannot be enabled, only masked"
A_PERSON = (RESTARTED, INSTALL, MASKED, NOT_LOADED, UNTIL_BOOT, STATIC)
"""What the fix does not change."""


def advice(unit: Unit) -> str:
    if unit.active_state == "failed":
        return (
            f"`journalctl -b -u {unit.name}` shows why it failed; it may fail again after a restart"
        )
    if unit.active_state == "activating":
        return f"{RESTARTED}`journalctl -b -u {unit.name}` shows why"
    if is_absent(unit):
        return INSTALL
    if unit.load_state == "masked":
        return f"{MASKED}: ask why, then `systemctl unmask {unit.name}`"
    if unit.load_state in ("error", "bad-setting"):
        return f"{NOT_LOADED}: `systemd-analyze verify {unit.name}` shows why"
    if unit.file_state == "enabled-runtime":
        return f"{UNTIL_BOOT}: `systemctl enable {unit.name}` makes it permanent"
    if unit.file_state == "static":
        return STATIC
    return ""


def learn(evidence: Evidence) -> Value:
    """The running units and the enabled units, of those that the probe read and that exist."""
    data = evidence[Units].data
    present = [unit for unit in (data.units if data else None) or () if not is_absent(unit)]
    by_key = {
        "running": sorted(unit.name for unit in present if unit.active_state in ACTIVE),
        "enabled": sorted(unit.name for unit in present if unit.file_state == "enabled"),
    }
    return {key: names for key, names in by_key.items() if names} or None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        "services.busy",
        *reads_of("services.units[]", "active_state", "file_state", "load_state", "name"),
        "services.units[].sub_state",
    ),
    judge=judge,
    unasked="for HGX boards (fabric manager): each site chooses its other units",
    learn=learn,
    asks=lambda params: {"services": params.units},
    actions=dict.fromkeys(A_PERSON, NeededAction.SITE),
)
