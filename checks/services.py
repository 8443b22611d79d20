"""The named systemd units are running or stopped, enabled or disabled, as expected.

**Why it matters.** Without nvidia-persistenced every job waits for the driver to initialise;
without nvidia-fabricmanager no CUDA program starts on a node with NVSwitch; without DCGM there is
no GPU monitoring. A service that runs and is not enabled is gone after the next reboot.

**Read from** `systemctl show`: LoadState, ActiveState, SubState and UnitFileState of the units
that the baseline names.

**Verdicts.** `running` means active; a unit that has failed fails both `running` and `stopped`.
`enabled` holds beyond a reboot: enabled-runtime does not, and a static unit is started by others
only. `disabled` takes disabled and masked. A unit that does not exist is neither running nor
enabled. Without systemd everything is unknown.

**To fix it** `systemctl enable --now UNIT` or `systemctl disable --now UNIT`; of one that has
failed `journalctl -b -u UNIT` says why. Enablement follows presets when a package is installed; a
masked unit must be unmasked first.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, Meta
from msgspec.structs import force_setattr

from nodevet.checking.aspects import Aspect, doubted, judged, met, unread_aspect
from nodevet.checking.named import each_named
from nodevet.evidence.across import DRIVER_FAULT
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import UNIT_NAME, Unit, Units
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    Verdict,
)

LISTS = ("running", "stopped", "enabled", "disabled")
OPPOSITES = (("running", "stopped"), ("enabled", "disabled"))
ACTIVE = ("active", "reloading")
SILENT = ("", "generated", "transient", "alias", "bad")  # say nothing of the next boot

UNIT = rf"^{UNIT_NAME}\.(service|socket|timer|target|path|mount|swap)$"


def once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


Name = Annotated[
    str,
    Meta(pattern=UNIT, title="a systemd unit with its suffix, such as nvidia-persistenced.service"),
]


OF_THE_DRIVER = ("nvidia-fabricmanager.service", "nvidia-persistenced.service")
"""They end at once without it."""


class Params(CheckParams):
    """`services: {running: [nvidia-persistenced.service], enabled: [nvidia-persistenced.service]}`
    or `services: {stopped: [tuned.service], disabled: [tuned.service]}`"""

    running: tuple[Name, ...] = ()
    enabled: tuple[Name, ...] = ()
    """Started at boot."""
    disabled: tuple[Name, ...] = ()
    stopped: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        for field in LISTS:
            force_setattr(self, field, once(getattr(self, field)))
        for one, other in OPPOSITES:
            both = sorted(set(getattr(self, one)) & set(getattr(self, other)))
            if both:
                raise ValueError(f"{', '.join(both)}: in {one} and in {other}")

    @property
    def units(self) -> tuple[str, ...]:
        return once(tuple(name for field in LISTS for name in getattr(self, field)))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Units]
    listed = (section.data.units if section.data else None) or ()
    found = {unit.name: unit for unit in listed}
    for each in each_named(section, params.units, label="services", listed="units", kind="unit"):
        if isinstance(each, Finding):
            yield each
        else:
            subject, name = each
            yield from judge_unit(subject, found[name], params)


def judge_unit(subject: Subject, unit: Unit, params: Params) -> Iterator[Finding]:
    aspects = []
    if unit.name in params.running:
        aspects.append(state(unit, "running"))
    if unit.name in params.stopped:
        aspects.append(state(unit, "stopped"))
    if unit.name in params.enabled:
        aspects.append(boot(unit, "enabled"))
    if unit.name in params.disabled:
        aspects.append(boot(unit, "disabled"))
    differs = {each.name for each in aspects if each.verdict is Verdict.FAIL}
    needs_it = unit.name in OF_THE_DRIVER and differs == {"running"}
    yield from judged(
        subject,
        aspects,
        advice=lambda bad: advice(unit),
        listed=True,
        cause=DRIVER_FAULT if needs_it else UNSET,
    )


def state(unit: Unit, wanted: str) -> Aspect:
    """Whether it runs, or does not."""
    actual = unit.active_state
    if not actual:
        return unread_aspect(unit, "active_state")
    if actual == "inactive" and absent(unit):
        shown = "not there"
    elif unit.sub_state and unit.sub_state != actual:
        shown = f"{actual} ({unit.sub_state})"
    else:
        shown = actual
    right = actual in (ACTIVE if wanted == "running" else ("inactive",))
    return met(wanted, right, expected=wanted, actual=shown)


def boot(unit: Unit, wanted: str) -> Aspect:
    """Whether it starts at boot, or does not."""
    actual = unit.file_state
    if actual is None:
        return unread_aspect(unit, "file_state")
    if not actual and absent(unit):
        return met(wanted, wanted == "disabled", expected=wanted, actual="not there")
    if actual in SILENT:
        why = f"file_state: {actual or 'none'} does not say whether it starts at boot"
        return doubted(wanted, why)
    right = actual in (("enabled",) if wanted == "enabled" else ("disabled", "masked"))
    return met(wanted, right, expected=wanted, actual=actual)


def absent(unit: Unit) -> bool:
    return unit.load_state == "not-found"


def advice(unit: Unit) -> str:
    if unit.active_state == "failed":
        return (
            f"`journalctl -b -u {unit.name}` says why it failed; it may fail again when restarted"
        )
    if unit.active_state == "activating":
        return f"starting: check again; if it keeps restarting, see `journalctl -u {unit.name}`"
    if absent(unit):
        return "install its package, or correct the name"
    if unit.load_state == "masked":
        return f"it is masked, usually on purpose: ask why, then `systemctl unmask {unit.name}`"
    if unit.load_state in ("error", "bad-setting"):
        return f"systemd could not load it: `systemd-analyze verify {unit.name}` says why"
    if unit.file_state == "enabled-runtime":
        return f"enabled until the next boot only: `systemctl enable {unit.name}` holds beyond it"
    if unit.file_state == "static":
        return "a static unit is started by other units: it cannot be enabled, only masked"
    return ""


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"services": params.units}


def learn(evidence: Evidence) -> Value:
    """Of the units that were asked for and are there: those that run, and those that start."""
    data = evidence[Units].data
    there = [unit for unit in (data.units if data else None) or () if not absent(unit)]
    found = {
        "running": sorted(unit.name for unit in there if unit.active_state in ACTIVE),
        "enabled": sorted(unit.name for unit in there if unit.file_state == "enabled"),
    }
    return {key: names for key, names in found.items() if names} or None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        "services.units[].active_state",
        "services.units[].file_state",
        "services.units[].load_state",
        "services.units[].name",
    ),
    judge=judge,
    unasked="for HGX boards (fabric manager): other units are a site's own",
    learn=learn,
    asks=asks,
)
