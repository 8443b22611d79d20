"""Read what a Redfish service reports of a node. Each value fails alone; `errors` says why.

Paths are the service's own links. Newer resources come first, then those that DSP0268 deprecates:
PowerSubsystem and Power, ThermalSubsystem and Thermal.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import starmap
from typing import Any

from nodevet.base.printable import brief
from nodevet.bmc.ages import SLACK, least_ages_of_log
from nodevet.bmc.errors import BmcError, MissingResourceError
from nodevet.bmc.fields import FULL_LOG, MOST_EVENTS, RecordFields, inlet, number, renamed, text
from nodevet.bmc.https import Document, Redfish

ROOT = "/redfish/v1"
CHASSIS = f"{ROOT}/Chassis"
MANAGERS = f"{ROOT}/Managers"
MOST_MEMBERS = 64  # of a collection
MOST_PAGES = 40
BIOS = ("BootMode", "SriovGlobalEnable", "ProcVirtualization", "LogicalProc", "SysProfile",
        "WorkloadProfile", "DeterminismSlider", "NumaNodesPerSocket", "AcpiSlit")  # fmt: skip
"""Attributes that change how GPUs perform; vendors name them differently."""
HARDWARE_LOGS = ("sel", "iml", "sl", "log1", "eventlog", "hwlog", "platformlog", "activelog",
                 "faultlist", "faultlog")  # fmt: skip
"""Ids of logs about hardware, in lower case; others log logins and updates."""


def read(service: Redfish, attributes: Sequence[str] = ()) -> RecordFields:
    """The fields of the section. `attributes`: of the BIOS, by their names. Raises BmcError if not
    even the power state can be read."""
    system = the_system(service)
    fields = RecordFields(kind="redfish", power=text(system.get("PowerState"), lower=True))
    fields |= {"vendor": text(system.get("Manufacturer")), "model": text(system.get("Model"))}
    fields |= {"system_uuid": text(system.get("UUID")) or "", "serials": serials(system)}
    fields["boot_progress"] = text(system.get("BootProgress", {}), "LastState")
    fields["boot_override"] = _override(system.get("Boot"))
    settings = fields.take("bios", lambda: _bios(service, system))
    fields["bios"] = None if settings is None else _bios_settings(settings)
    fields.take("attributes", lambda: _attributes(settings, attributes))
    fields.take("firmware", lambda: _firmware(_members(service, MANAGERS)))
    parts = fields.take("parts", lambda: _parts(service)) or []
    fields["parts_found"] = len(parts)
    fields["parts"] = renamed(parts) if fields["parts"] is not None else None
    fields.take("power_limit_w", lambda: _power(service, "PowerLimit", "LimitInWatts"))
    fields.take("power_w", lambda: _power(service, "PowerConsumedWatts"))
    fields["inlet_c"] = inlet(fields["parts"] or [])
    _take_events(fields, service, system)  # last: a long log takes minutes
    return fields


def _take_events(fields: RecordFields, service: Redfish, system: Document) -> None:
    events = fields.take("events", lambda: _events(service, system)) or []
    kept = events[:MOST_EVENTS]
    critical = sum(event["severity"] == "critical" for event in events)
    fields["events"] = kept if fields["events"] is not None else None
    fields["events_found"] = len(kept)
    fields.take("events_total", lambda: _total(service, system, max(critical, len(kept))))


def the_system(service: Redfish) -> Document:
    """The node itself: not the board of its GPUs, which some services list as another system.
    Raises BmcError if several may be it."""
    systems = _members(service, f"{ROOT}/Systems")
    nodes = [
        system for system in systems if not str(system.get("Id", "")).upper().startswith("HGX_")
    ]
    if len(nodes) != 1:
        names = ", ".join(filter(None, (text(system.get("Id")) for system in nodes))) or "none"
        raise BmcError(f"it should list exactly one system, but lists: {names}")
    return nodes[0]


def serials(system: Document) -> list[str]:
    """What identifies a system besides its UUID: Dell has the service tag in SKU."""
    return [*filter(None, (text(system.get("SerialNumber")), text(system.get("SKU"))))]


def _members(service: Redfish, path: str) -> list[Document]:
    return [service.get(link) for link in _links(service.get(path))]


def _links(collection: Document) -> list[str]:
    """All members of a collection. Raises BmcError if it does not show them all."""
    links = [link for link in map(_link, _embedded_items(collection, "Members")) if link]
    count, further = (collection.get(f"Members@odata.{name}") for name in ("count", "nextLink"))
    is_more = isinstance(count, int) and count > len(links)
    if len(links) > MOST_MEMBERS or is_more or further:
        total = count if is_more else "the"
        raise BmcError(f"it shows {len(links):,} of {total} members of a collection")
    return links


def _link(item: Any) -> str:
    link = item.get("@odata.id") if isinstance(item, dict) else None
    return link if isinstance(link, str) else ""


def _linked_resource(service: Redfish, owner: Document, *names: str) -> Document | None:
    """The resource that is some links away; None if there is no such link or resource."""
    here: Document | None = owner
    for name in names:
        link = _link(here.get(name)) if here else ""
        if not link:
            return None
        try:
            here = service.get(link)
        except MissingResourceError:
            return None
    return here


def _override(boot: Any) -> str | None:
    if not isinstance(boot, dict) or "BootSourceOverrideEnabled" not in boot:
        return None
    words = (boot.get("BootSourceOverrideEnabled"), boot.get("BootSourceOverrideTarget"))
    enabled, target = map(text, words)
    return "" if enabled == "Disabled" or target == "None" else f"{enabled} {target}"


def _bios(service: Redfish, system: Document) -> Document | None:
    bios = _linked_resource(service, system, "Bios")
    settings = bios.get("Attributes") if bios else None
    return settings if isinstance(settings, dict) else None


def _bios_settings(settings: Document) -> dict[str, str]:
    return {name: text(str(settings[name])) or "" for name in BIOS if name in settings}


def _attributes(settings: Document | None, names: Sequence[str]) -> list[RecordFields]:
    """Raises BmcError if there are names, and no settings."""
    if names and settings is None:
        raise BmcError("nodevet read no BIOS settings from it")
    return [_attribute(settings or {}, name) for name in names]


def _attribute(settings: Document, name: str) -> RecordFields:
    value = settings.get(name)
    record = RecordFields(name=name, value=None if value is None else text(str(value)) or "")
    if value is None:
        record["errors"] = {"value": "the BMC has no attribute of this name"}
    return record


def _firmware(managers: Sequence[Document]) -> str | None:
    return next(filter(None, (text(manager, "FirmwareVersion") for manager in managers)), None)


def _events(service: Redfish, system: Document) -> list[RecordFields]:
    """The entries of all hardware logs. Vendors keep them at the system, manager or chassis."""
    clocks: dict[str, datetime | None] = {}  # of the logs
    now: datetime | None = None
    for owner in _owners(service, system):
        clock = _time(owner.get("DateTime"))
        now = now or clock
        for log in _logs(service, owner):
            clocks[log] = clocks.get(log) or clock
    if not clocks:
        raise BmcError("it has no log of hardware events")
    logs = [_log_events(log, _entries(service, log), clock or now) for log, clock in clocks.items()]
    events = [event for log_events in logs for event in log_events]
    return sorted(events, key=lambda event: (event["severity"] != "critical", _event_age(event)))


def _log_events(log: str, entries: list[Document], now: datetime | None) -> list[RecordFields]:
    """The entries of one log. A wrong clock may have dated them: `least_s` says how young they may
    be."""
    events = [_event(log, entry, now) for entry in entries]
    ages = [event["age_s"] for event in events]
    ahead = now.timestamp() - time.time() if now else 0.0
    ids = [str(entry.get("Id", "")) for entry in entries]
    for event, least in zip(events, least_ages_of_log(ids, ages, ahead), strict=True):
        event["least_s"] = least
        if event["age_s"] is not None and event["age_s"] < -SLACK:
            event["age_s"] = None
    return events


def _event_age(event: RecordFields) -> int:
    return int(event["age_s"] if event["least_s"] is None else event["least_s"])


def _owners(service: Redfish, system: Document) -> list[Document]:
    return [system, *_members(service, MANAGERS), *_members(service, CHASSIS)]


def _total(service: Redfish, system: Document, total: int) -> int:
    """`total`, if every hardware log takes new entries. Raises BmcError."""
    for path in (log for owner in _owners(service, system) for log in _logs(service, owner)):
        log = service.get(path)
        entries = _linked_resource(service, log, "Entries") or {}
        most, count = log.get("MaxNumberOfRecords"), entries.get("Members@odata.count")
        if log.get("ServiceEnabled") is False:
            raise BmcError(f"{brief(path)} is switched off: turn it on in the BMC")
        is_full = isinstance(most, int) and isinstance(count, int) and 0 < most <= count
        if is_full and log.get("OverWritePolicy") == "NeverOverWrites":
            raise BmcError(FULL_LOG)
    return total


def _logs(service: Redfish, owner: Document) -> Iterator[str]:
    """The paths of its logs of hardware."""
    for link in _links(_linked_resource(service, owner, "LogServices") or {}):
        if link.rstrip("/").rpartition("/")[2].lower() in HARDWARE_LOGS:
            yield link


def _entries(service: Redfish, log: str) -> list[Document]:
    """All its entries: a service may show the oldest on the first page, and links in place of
    entries. Raises BmcError."""
    page = _linked_resource(service, service.get(log), "Entries") or {}
    count = page.get("Members@odata.count")
    entries: list[Document] = []
    for _ in range(MOST_PAGES):
        entries += _embedded_items(page, "Members")
        following = page.get("Members@odata.nextLink")
        if not isinstance(following, str):
            break
        page = service.get(following)
    if isinstance(count, int) and len(entries) < count:
        raise BmcError(f"{len(entries):,} of {count:,} entries of its log were read")
    return [entry if "Id" in entry else service.get(_link(entry)) for entry in entries]


def _event(log: str, entry: Document, now: datetime | None) -> RecordFields:
    created = _time(entry.get("Created"))
    age = int((now - created).total_seconds()) if now and created else None
    return RecordFields(
        id=text(f"{log.removeprefix(ROOT)}/{entry.get('Id', '?')}"),
        age_s=age,
        severity=text(entry.get("Severity"), lower=True) or "",
        text=text(entry.get("Message")),
        ended=entry.get("Resolved") is True,
    )


def _time(value: Any) -> datetime | None:
    """A time with a zone; a BMC that never had its clock set says 1970."""
    try:
        moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo and moment.year > 2000 else None


Finder = Callable[[Redfish, Document], Iterator[tuple[str, Document]]]


def _parts(service: Redfish) -> list[RecordFields]:
    chassis = _members(service, CHASSIS)
    items = (
        item for enclosure in chassis for finder in FINDERS for item in finder(service, enclosure)
    )
    return [part for part in starmap(_part, items) if part["state"] != "Absent"]


def _part(kind: str, item: Document) -> RecordFields:
    status = item.get("Status")
    status = status if isinstance(status, dict) else {}
    health = item.get("DetectorState") if kind == "leak" else status.get("Health")
    reading = item.get("ReadingCelsius", item.get("Reading"))
    if isinstance(item.get("SpeedPercent"), dict):
        reading = item["SpeedPercent"].get("Reading")
    unit = "Cel" if kind == "temperature" else item.get("ReadingUnits")
    name = item.get("Name") or item.get("FanName") or item.get("MemberId") or item.get("Id")
    return RecordFields(
        kind=kind,
        name=text(name) or "?",
        health=text(health, lower=True),
        state=text(status.get("State")),
        reading=number(reading),
        unit=text(unit),
    )


def _power_parts(service: Redfish, chassis: Document) -> Iterator[tuple[str, Document]]:
    newer = _required_resource(service, chassis, "PowerSubsystem")
    older = None if newer else _required_resource(service, chassis, "Power")
    for supply in _linked_members(service, newer, "PowerSupplies") or _embedded_items(
        older, "PowerSupplies"
    ):
        yield "psu", supply
    redundancies = _embedded_items(newer, "PowerSupplyRedundancy") or _embedded_items(
        older, "Redundancy"
    )
    yield from (("redundancy", redundancy) for redundancy in redundancies)


def _thermal_parts(service: Redfish, chassis: Document) -> Iterator[tuple[str, Document]]:
    newer = _required_resource(service, chassis, "ThermalSubsystem")
    older = None if newer else _required_resource(service, chassis, "Thermal")
    for fan in _linked_members(service, newer, "Fans") or _embedded_items(older, "Fans"):
        yield "fan", fan
    metrics = _linked_resource(service, newer, "ThermalMetrics") if newer else None
    inlet = (metrics or {}).get("TemperatureSummaryCelsius", {})
    if isinstance(inlet, dict) and isinstance(inlet.get("Intake"), dict):
        yield "temperature", {"Name": "Inlet", **inlet["Intake"]}
    yield from (
        ("temperature", temperature) for temperature in _embedded_items(older, "Temperatures")
    )
    leaks = _required_resource(service, newer, "LeakDetection") if newer else None
    yield from (("leak", detector) for detector in _linked_members(service, leaks, "LeakDetectors"))


def _required_resource(service: Redfish, owner: Document, name: str) -> Document | None:
    """As `_linked_resource`. Raises BmcError if there is a link that leads nowhere."""
    resource = _linked_resource(service, owner, name)
    if resource is None and _link(owner.get(name)):
        raise BmcError(f"its link to {name} leads nowhere")
    return resource


def leak_detectors(service: Redfish) -> list[RecordFields]:
    """The leak detectors of all chassis; empty if it links to none. Raises BmcError if one cannot
    be read, also if a link is invalid or leads nowhere."""
    detectors = []
    for chassis in map(service.get, _every_link(service.get(CHASSIS))):
        here: Document = chassis
        for name in ("ThermalSubsystem", "LeakDetection", "LeakDetectors"):
            if here.get(name) is not None and not _link(here[name]):
                raise BmcError(f"its {name} is not a link")
            here = service.get(link) if (link := _link(here.get(name))) else {}
        links = _every_link(here) if here else ()
        detectors += [_part("leak", service.get(link)) for link in links]
    return [detector for detector in detectors if detector["state"] != "Absent"]


def _every_link(collection: Document) -> list[str]:
    """As `_links`. Raises BmcError also if a member is no link, or if it has no list of them."""
    links, members = _links(collection), collection.get("Members")
    if not isinstance(members, list) or len(members) != len(links):
        raise BmcError("it does not list the members of a collection")
    return links


FINDERS: tuple[Finder, ...] = (_power_parts, _thermal_parts)


def _linked_members(service: Redfish, owner: Document | None, name: str) -> list[Document]:
    collection = _required_resource(service, owner, name) if owner else None
    return [service.get(link) for link in _links(collection or {})]


def _embedded_items(owner: Document | None, name: str) -> list[Document]:
    items = owner.get(name) if owner else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _power(service: Redfish, *path: str) -> float | None:
    """A value of the chassis' power control, in watts."""
    for chassis in _members(service, CHASSIS):
        for control in _embedded_items(_linked_resource(service, chassis, "Power"), "PowerControl"):
            value: Any = control
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if number(value) is not None:
                return number(value)
        metrics = _linked_resource(service, chassis, "EnvironmentMetrics") or {}
        sensor = metrics.get("PowerLimitWatts" if len(path) > 1 else "PowerWatts")
        value = sensor.get("SetPoint", sensor.get("Reading")) if isinstance(sensor, dict) else None
        if number(value) is not None:
            return number(value)
    return None
