"""Break-fix records of hosts, with the fields that NVIDIA's ai-cloud-validation reads: the repair
history of a machine (BFX02-03) and the identifiers of its parts (BFX03-01). Pure.

nodevet does not know tickets, accounts, handover dates, or the serial numbers of the chassis, the
baseboard and CPUs, so the records have no fields for them.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodevet.base.printable import plain
from nodevet.past.story import HostStory, StoryEvent, StoryKind
from nodevet.store.records.model import PartKind
from nodevet.vet.findings.words import difference

REPAIRS = frozenset(
    {
        *(StoryKind.FAILS, StoryKind.FIXED, StoryKind.DIAGNOSED),
        *(StoryKind.FIX, StoryKind.ROLLBACK, StoryKind.REPLACED),
        *(StoryKind.PART_IN, StoryKind.PART_OUT),
    }
)
"""The events that belong to a repair."""
COMPONENTS: Mapping[PartKind, str] = {
    PartKind.GPU: "gpu",
    PartKind.NIC: "nic",
    PartKind.NVME: "drive",
    PartKind.DRIVE: "drive",
}


class RepairEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a repair."""

    status: str  # the value of a StoryKind
    message: str
    updated_at: str  # UTC, ISO 8601
    opened_at: str = ""  # when the fault began, if this event ends one
    category: str = ""  # the check
    component_id: str = ""  # UUID, GUID, MAC address or serial number
    action: str = ""  # the change that a fix made
    plan: str = ""  # id of the plan of the fix


class RepairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The repair history of one machine, the oldest event first."""

    machine_id: str  # the name of the host
    entries: tuple[RepairEntry, ...]


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one kind that nodevet saw in its last successful visit of a machine."""

    present: bool
    identifiers: tuple[str, ...]


class MachineParts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of one machine. `components` has only the kinds of parts that nodevet saw."""

    machine_id: str  # the name of the host
    updated_at: str = ""  # when nodevet last saw these parts, UTC, ISO 8601; empty: never
    components: Mapping[str, Component]


class BreakFix(msgspec.Struct, frozen=True, kw_only=True):
    """The records of some machines. A machine without a repair has no record."""

    success: bool = True
    platform: str = "nodevet"
    history_queryable: bool = True
    records: tuple[RepairRecord, ...]
    machines_checked: int
    machines: tuple[MachineParts, ...]


def break_fix(stories: Iterable[HostStory]) -> BreakFix:
    """The records of these hosts."""
    known = tuple(stories)
    records = [RepairRecord(machine_id=one.host, entries=tuple(_entries(one))) for one in known]
    return BreakFix(
        records=tuple(record for record in records if record.entries),
        machines_checked=len(known),
        machines=tuple(
            MachineParts(
                machine_id=one.host,
                updated_at=max((place.last.at for place in one.parts), default=""),
                components=_components(one),
            )
            for one in known
        ),
    )


def _entries(story: HostStory) -> Iterator[RepairEntry]:
    for event in story.events:
        if event.kind in REPAIRS:
            yield RepairEntry(
                status=event.kind.value,
                message=_message(event),
                updated_at=event.at,
                opened_at=event.since,
                category=event.finding.check if event.finding else "",
                component_id=_component_id(event),
                action=_action(event),
                plan=_plan(event),
            )


def _message(event: StoryEvent) -> str:
    if event.part is not None:
        way = "from" if event.kind is StoryKind.PART_IN else "to"
        other = f", {way} {event.elsewhere}" if event.elsewhere else ""
        return plain(f"{event.part.kind.value} {event.part.model} at {event.slot}{other}")
    if event.finding is not None:
        what, _ = difference(event.finding)
        label = plain(event.finding.subject.label)
        return f"{plain(event.finding.check)}: {what}" + (f" ({label})" if label else "")
    return plain(": ".join(filter(None, (event.outcome, event.text or _action(event)))))


def _component_id(event: StoryEvent) -> str:
    if event.part is not None:
        return event.part.id
    return event.finding.subject.uuid or "" if event.finding else ""


def _action(event: StoryEvent) -> str:
    change = event.action
    return plain(f"{change.resource}: {change.before} → {change.after}") if change else ""


def _plan(event: StoryEvent) -> str:
    if event.action is not None:
        return event.action.plan
    return event.by.plan if event.by else ""


def _components(story: HostStory) -> dict[str, Component]:
    identifiers: dict[str, list[str]] = {}
    for place in story.parts:
        identifiers.setdefault(COMPONENTS[place.part.kind], []).append(place.part.id)
    return {
        kind: Component(present=True, identifiers=tuple(found))
        for kind, found in identifiers.items()
    }
