"""What BMCs report, as a sheet. Pure."""

from collections.abc import Iterator, Mapping

from nodevet.base.durations import coarse
from nodevet.base.printable import brief
from nodevet.evidence.bmc import BmcEvent, BmcInfo, BmcPart
from nodevet.evidence.core import Section
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count

TONES = {"critical": "fail", "warning": "warning", "ok": "ok"}
MACHINE_HEADS = ("host", "machine of the BMC", "system UUID", "serial numbers")
MOST = 10  # events and parts of a host that a table shows


def bmc_sheet(sections: Mapping[str, Section[BmcInfo]]) -> Sheet:
    """One table of hosts, and one of what their BMCs do not call ok."""
    hosts = tuple(_host(name, section) for name, section in sections.items())
    heads = ("host", "power", "inlet", "draws", "limit", "parts", "events")
    blocks = [TableBlock(heads=heads, rows=hosts)]
    read = {name: section.data for name, section in sections.items() if section.data}
    troubles = tuple(row for name, bmc in read.items() for row in _troubles(name, bmc))
    if troubles:
        blocks.append(TableBlock(heads=("host", "part", "says", "when"), rows=troubles))
    machines = tuple(_machine(name, bmc) for name, bmc in read.items())
    if machines:
        blocks.append(TableBlock(heads=MACHINE_HEADS, rows=machines))
    unread = sum(section.data is None for section in sections.values())
    title = f"{count(len(sections), 'BMC')}" + (f" · {unread:,} not read" if unread else "")
    return Sheet(title=title, kind="bmc", blocks=tuple(blocks))


def _host(name: str, section: Section[BmcInfo]) -> tuple[Cell, ...]:
    bmc = section.data
    if bmc is None:
        return Cell(brief(name)), Cell(brief(section.why, 200), "unknown")
    return (
        Cell(brief(name)),
        Cell(bmc.power or "?", "" if bmc.power else "unknown"),
        Cell(_value(bmc.inlet_c, "°C"), right=True),
        Cell(_value(bmc.power_w, "W"), right=True),
        Cell(_value(bmc.power_limit_w, "W"), right=True),
        _number(bmc, "parts"),
        _number(bmc, "events"),
    )


def _machine(name: str, bmc: BmcInfo) -> tuple[Cell, ...]:
    """What identifies the machine that a BMC belongs to."""
    model = " ".join(filter(None, (bmc.vendor, bmc.model)))
    texts = (name, model, bmc.system_uuid or "", ", ".join(bmc.serials or ()))
    return tuple(Cell(brief(text, 80)) for text in texts)


def _value(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g} {unit}"


def _number(bmc: BmcInfo, field: str) -> Cell:
    items = getattr(bmc, field)
    return Cell(brief(bmc.why(field), 80), "unknown") if items is None else Cell(f"{len(items):,}")


def _troubles(name: str, bmc: BmcInfo) -> Iterator[tuple[Cell, ...]]:
    parts = [part for part in bmc.parts or () if part.health not in (None, "ok")]
    events = [event for event in bmc.events or () if event.severity != "ok" and not event.ended]
    yield from (_part(name, part) for part in parts[:MOST])
    yield from (_event(name, event) for event in events[:MOST])


def _part(name: str, part: BmcPart) -> tuple[Cell, ...]:
    value = f" {part.reading:g} {part.unit or ''}".rstrip() if part.reading is not None else ""
    says = f"{part.health}: {part.state or ''}{value}"
    return (
        Cell(brief(name)),
        Cell(f"{part.kind} {brief(part.name)}"),
        Cell(brief(says, 200), TONES.get(part.health or "", "unknown")),
        Cell("now"),
    )


def _event(name: str, event: BmcEvent) -> tuple[Cell, ...]:
    when = "clock not set" if event.age_s is None else f"{coarse(max(0, event.age_s))} ago"
    when = when if event.age_s is None or event.least_s is None else "clock was wrong"
    says = ": ".join(filter(None, (event.severity, event.text)))
    tone = TONES.get(event.severity or "", "")
    return (
        Cell(brief(name)),
        Cell(brief(event.part or "")),
        Cell(brief(says, 200), tone),
        Cell(when),
    )
