"""The passport of a part as a sheet: where it was, its faults and its counters. Pure."""

from collections.abc import Sequence

from nodevet.base.printable import brief, plain
from nodevet.model import Finding, Verdict
from nodevet.past.passport import PartFault, Passport, Stay
from nodevet.past.sheets.fixes import repairs
from nodevet.past.sheets.parts import KINDS, at_text, fold
from nodevet.past.sheets.story import LONGEST, proof_text
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, FactBlock, Sheet, TableBlock
from nodevet.sheet.text import name
from nodevet.store.records.model import Part
from nodevet.vet.findings.words import difference, subjects_of

MOST_POINTS = 40  # rows of counters that moved


def passport_sheet(passport: Passport, clock: Clock, *, kind: str = "passport") -> Sheet:
    """The identity of a part, its places, faults, repairs and counters."""
    part = passport.part
    here = passport.current_stay
    now = f"in {name(here.host)}, {plain(here.slot)}" if here else _gone_text(passport.stays, clock)
    if overlaps := len(passport.at_once):
        now = f"in {overlaps} places at once"
    tables = (
        _stays(passport, clock),
        _faults(passport, clock),
        repairs("Repairs", passport.repairs, clock),
        repairs("Fixed on its host meanwhile", passport.around, clock),
        _counters(passport.stays),
        _points(passport, clock),
    )
    return Sheet(
        title=f"{KINDS[part.kind.value]} {plain(part.id)}: {now}",
        kind=kind,
        blocks=(_identity(part), *(table for table in tables if table is not None)),
        end="" if passport.faults else "no check has reported a problem with it",
    )


def _identity(part: Part) -> FactBlock:
    """The model and the names of a part."""
    names = {"gpu": "serial, part number, VBIOS", "nic": "board, firmware"}
    facts = (
        ("model", plain(part.model)),
        (names.get(part.kind.value, "serial, firmware"), plain(", ".join(part.names))),
    )
    return FactBlock(rows=tuple(row for row in facts if row[1]))


def _gone_text(stays: Sequence[Stay], clock: Clock) -> str:
    if not stays:
        return "never seen"
    last = stays[-1]
    return f"not seen since {at_text(last.last, clock)}, in {name(last.host)}"


def _stays(passport: Passport, clock: Clock) -> TableBlock:
    several = (
        "several parts have this id, or a place was not read after the part had left it: this "
        "passport may mix more than one part"
    )
    return TableBlock(
        title="Where it was",
        heads=("from", "to", "host", "slot"),
        rows=tuple(
            (
                Cell(clock.moment_text(stay.first)),
                Cell(
                    "now" if stay.open else clock.moment_text(stay.last), "ok" if stay.open else ""
                ),
                Cell(name(stay.host)),
                Cell(plain(stay.slot)),
            )
            for stay in passport.stays
        ),
        note=several if passport.at_once else "",
    )


def _faults(passport: Passport, clock: Clock) -> TableBlock | None:
    """What checks said of the part; alike findings of one time share a row."""
    groups: dict[object, list[PartFault]] = {}
    for fault in passport.faults:
        times = (fault.first, fault.last, fault.open, fault.by)
        key = (*times, fault.host, fault.verdict, _difference_text(fault.finding))
        groups.setdefault(key, []).append(fault)
    rows = tuple(
        (
            Cell(clock.moment_text(first.first)),
            _end_cell(first, clock),
            Cell(name(first.host)),
            Cell(first.verdict.value.upper(), _verdict_tone(first.verdict)),
            Cell(_difference_text(first.finding) + _of_several(group)),
        )
        for group in groups.values()
        for first in group[:1]
    )
    heads = ("from", "to", "host", "", "what")
    return TableBlock(title="Faults", heads=heads, rows=rows) if rows else None


def _of_several(faults: Sequence[PartFault]) -> str:
    """` (link 0-17)`; empty for one fault."""
    subjects, _ = subjects_of([("", fault.finding) for fault in faults])
    return f" ({subjects})" if len(faults) > 1 else ""


def _end_cell(fault: PartFault, clock: Clock) -> Cell:
    if fault.by is not None:
        return Cell(proof_text(fault.by, clock), "ok")
    return Cell("now", "fail") if fault.open else Cell(clock.moment_text(fault.last))


def _verdict_tone(verdict: Verdict) -> str:
    return {Verdict.FAIL: "fail", Verdict.UNKNOWN: "unknown"}.get(verdict, "waived")


def _difference_text(finding: Finding) -> str:
    what, why = difference(finding)
    return f"{brief(finding.check)}: {what}" + (f"; {brief(why, LONGEST)}" if why else "")


def _counters(stays: Sequence[Stay]) -> TableBlock | None:
    """The counters of each place, when the part came and when they were last read there."""
    rows = tuple(
        (
            Cell(plain(counter)),
            Cell(name(stays[place].host)),
            Cell(f"{before:,}", right=True),
            Cell(f"{after:,}", "fail" if after > before else "", right=True),
        )
        for counter, (place, before, after) in fold(
            (f"{counter.name} {counter.subject}".strip(), (place, counter.before, counter.after))
            for place, stay in enumerate(stays)
            for counter in stay.counters
        )
    )
    heads = ("counter", "in", "when it came", "last read")
    note = "counters stay with the part when it moves; a counter that is not listed was 0"
    return TableBlock(title="Counters", heads=heads, rows=rows, note=note) if rows else None


def _points(passport: Passport, clock: Clock) -> TableBlock | None:
    folded = fold(
        (f"{point.name} {point.subject}".strip(), (point.moment.at, point.host, point.value))
        for point in passport.points
    )
    rows = tuple(
        (
            Cell(clock.moment_text(at)),
            Cell(name(host)),
            Cell(plain(counter)),
            Cell(f"{value:,}", right=True),
        )
        for counter, (at, host, value) in folded[-MOST_POINTS:]
    )
    heads = ("when", "host", "counter", "value")
    return TableBlock(title="When they moved", heads=heads, rows=rows) if rows else None
