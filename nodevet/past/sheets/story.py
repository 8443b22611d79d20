"""The story of a host, and of a part, as sheets. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.age import seconds_of
from nodevet.base.printable import brief, plain
from nodevet.model import Finding, HostFacts, HostOutcome, Severity, Verdict
from nodevet.past.listing import troubles
from nodevet.past.passport import PartFault, Passport, Stay
from nodevet.past.sheets.fixes import likeness, repairs, tone, what_changed, words
from nodevet.past.sheets.runs import KINDS, Since, findings, short
from nodevet.past.story import FixedSince, HostStory, Night, StoryEvent, StoryKind
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, FactBlock, Sheet, TableBlock
from nodevet.sheet.text import count, name
from nodevet.store.records.model import (
    FindingSpan,
    FixProof,
    Part,
    PartPlace,
    RecordedRun,
    RunState,
)
from nodevet.vet.findings.fold import lines
from nodevet.vet.findings.words import difference, subjects_of

LONGEST = 200  # columns of one text
MOST_NIGHTS = 60  # marks of runs
TONES = {
    StoryKind.FAILS: "fail",
    StoryKind.CHANGED: "warning",
    StoryKind.UNKNOWN: "unknown",
    StoryKind.WAIVED: "waived",
    StoryKind.FIXED: "ok",
    StoryKind.RESOLVED: "ok",
    StoryKind.LOST: "unreached",
    StoryKind.BACK: "ok",
    StoryKind.REPLACED: "warning",
}
MARKS = {
    HostOutcome.OK: "•",
    HostOutcome.FAIL: "✕",
    HostOutcome.UNKNOWN: "?",
    HostOutcome.WAIVED: "w",
}


def story_sheet(found: HostStory, clock: Clock) -> Sheet:
    """What happened to a host, the oldest first."""
    last = found.nights[-1] if found.nights else None
    nights = found.nights[-MOST_NIGHTS:]
    about = [
        *_seen(found, clock),
        ("nights", _marks(nights)),
        ("baseline", plain(found.baseline)),
        ("groups", plain(", ".join(found.groups))),
        *_facts(found.facts),
        ("parts", _parts(found.parts)),
    ]
    parts: list[TableBlock] = []
    if last:
        run = _no_run(last.run, last.at)
        parts += _wrong(found.open, found.baseline, run, clock)
        parts += _fixed(found.fixed, run, clock)
    parts.append(
        TableBlock(
            title="What happened",
            heads=("when", "", "what"),
            rows=tuple(_events(found.events, clock)),
        )
    )
    return Sheet(
        title=f"{name(found.host)}: {last.outcome.words if last else 'in no recorded run'}",
        kind="history",
        blocks=(FactBlock(rows=tuple(row for row in about if row[1])), *parts),
    )


def _wrong(
    spans: Sequence[FindingSpan], baseline: str, run: RecordedRun, clock: Clock
) -> Iterator[TableBlock]:
    """What is wrong by the baseline that judged the host last; by itself, what another one said."""
    by: dict[str, list[FindingSpan]] = {baseline: []}
    for span in spans:
        by.setdefault(span.baseline, []).append(span)
    for name_of, group in by.items():
        since = Since()
        told = [(span.host, span.finding) for span in group if span.finding is not None]
        for span in group:
            if span.finding is not None:
                since.add(span.host, span.finding, (span.since or span.first).at)
        title = "What is wrong now"
        if name_of != baseline:
            last = max((span.last.at for span in group), key=lambda at: seconds_of(at) or 0.0)
            when = " ".join(clock.at(last).split())
            title = f"What baseline {plain(name_of)} said, which judged it last {when}"
        if told:
            yield findings(title, lines(troubles(run, [], told)), since, clock)


def _fixed(fixed: Sequence[FixedSince], run: RecordedRun, clock: Clock) -> Iterator[TableBlock]:
    """What was wrong at the last visit, by the change that fixed it."""
    by: dict[str, list[FindingSpan]] = {}
    for each in fixed:
        by.setdefault(_by(each.by, clock), []).append(each.finding)
    for how, group in by.items():
        since = Since()
        told = [(span.host, span.finding) for span in group if span.finding is not None]
        for span in group:
            if span.finding is not None:
                since.add(span.host, span.finding, (span.since or span.first).at)
        title = f"{how[0].upper()}{how[1:]}"
        yield findings(title, lines(troubles(run, [], told)), since, clock, over=True)


def _by(proof: FixProof, clock: Clock) -> str:
    return f"fixed by {_plan(proof.plan)} at {_at(proof.at, clock)}, not vetted since"


def _plan(name: str) -> str:
    return f"plan {brief(name)}" if name else "a plan"


def _at(at: str, clock: Clock) -> str:
    return " ".join(clock.at(at).split())


def _seen(found: HostStory, clock: Clock) -> Iterator[tuple[str, str]]:
    """When, and in how many runs."""
    if not found.nights:
        return
    seen = count(len(found.nights), "run")
    since = " ".join(clock.at(found.nights[0].at).split())
    yield "last seen", clock.both(found.nights[-1].at)
    boots = count(found.boots, "boot")
    yield "runs", f"{seen} since {since}, vetted in {found.vetted:,}, {boots}"


def _no_run(run: str, at: str) -> RecordedRun:
    return RecordedRun(
        id=run,
        series="",
        started=at,
        seconds=0.0,
        state=RunState.COMPLETE,
        nodevet="",
        fail_on=Severity.INFO,
        hosts=1,
        visited=1,
        outcomes={},
        baselines={},
    )


def _marks(nights: Sequence[Night]) -> str:
    """`••✕✕•`: a mark for each run."""
    return "".join(MARKS.get(night.outcome, "–") for night in nights)


def _facts(facts: HostFacts | None) -> Iterator[tuple[str, str]]:
    if facts is None:
        return
    gpus = ", ".join(f"{number} × {plain(model)}" for model, number in facts.gpus.items())
    software = (facts.os, facts.kernel and f"kernel {facts.kernel}")
    driver = facts.driver and f"driver {facts.driver}"
    yield "machine", plain(facts.machine or "")
    yield "GPUs", gpus
    yield "software", plain(", ".join(filter(None, (*software, driver))))


def _parts(places: Iterable[PartPlace]) -> str:
    numbers: dict[str, int] = {}
    for place in places:
        kind = KINDS[place.part.kind.value]
        numbers[kind] = numbers.get(kind, 0) + 1
    return ", ".join(count(number, kind) for kind, number in numbers.items())


def _events(events: Sequence[StoryEvent], clock: Clock) -> Iterator[tuple[Cell, ...]]:
    """A row for what happened; alike findings of one moment are one, and so are alike changes."""
    groups: dict[object, list[StoryEvent]] = {}
    for place, event in enumerate(events):
        finding = event.finding
        key: object = place
        if finding is not None:
            key = (event.run, event.kind, finding.check, difference(finding), event.since)
        elif event.action is not None:
            key = likeness(event.action)
        groups.setdefault(key, []).append(event)
    shown = ""
    for group in groups.values():
        first = group[0]
        when = clock.at(first.at)
        yield (
            Cell("" if when == shown else when),
            Cell("" if _is_change(first) else first.kind.value, _tone(first)),
            Cell(_said(group, clock)),
        )
        shown = when


def _is_change(event: StoryEvent) -> bool:
    """Whether it stands below the run of fixes that changed it."""
    return event.action is not None and event.finding is None


def _tone(event: StoryEvent) -> str:
    if event.outcome:
        return tone(event.outcome)
    if event.kind is StoryKind.FAILS and event.finding:
        return "fail" if event.finding.severity is Severity.CRITICAL else "warning"
    return TONES.get(event.kind, "quiet")


def _said(group: Sequence[StoryEvent], clock: Clock) -> str:
    event = group[0]
    if event.part is not None:
        way = "from" if event.kind is StoryKind.PART_IN else "to"
        other = f", {way} {plain(event.elsewhere)}" if event.elsewhere else ""
        return (
            f"{KINDS[event.part.kind.value]} {short(event.part.id)} at {plain(event.slot)}{other}"
        )
    if event.outcome:
        return ": ".join(filter(None, (words(event.outcome), brief(event.text, LONGEST))))
    if event.finding is None and event.action is not None:
        return what_changed([each.action for each in group if each.action])
    if event.finding is None:
        return brief(event.text, LONGEST)
    said = about([each.finding for each in group if each.finding])
    if event.since:
        said += f"  (since {' '.join(clock.at(event.since).split())})"
    if event.action is not None:
        said += f"; by {_plan(event.action.plan)}, {_at(event.action.at, clock)}"
    if event.by is not None:
        said += f"; by {_plan(event.by.plan)}, which verified it"
    if event.after_plan:
        said += f"; came back after the fix by {_plan(event.after_plan)}"
    return said + (f"; {event.text}" if event.text else "")


def about(found: Sequence[Finding]) -> str:
    """`power_limit: 500 W, expected 700 W (GPU 0-7)`."""
    first = found[0]
    what, _ = difference(first)
    subjects, _ = subjects_of([("", each) for each in found])
    return f"{brief(first.check)}: {what}" + (f" ({subjects})" if subjects else "")


# --- a part ---


def passport_sheet(found: Passport, clock: Clock, *, kind: str = "passport") -> Sheet:
    """What a part is, where it was, what it had, what it counted."""
    part = found.part
    here = found.here
    now = f"in {name(here.host)}, {plain(here.slot)}" if here else _gone(found.stays, clock)
    if many := len(found.at_once):
        now = f"in {many} places at once"
    tables = (
        _stays(found, clock),
        _faults(found, clock),
        repairs("Repairs", found.repairs, clock),
        repairs("Fixed on its host meanwhile", found.around, clock),
        _counters(found.stays),
        _points(found, clock),
    )
    return Sheet(
        title=f"{KINDS[part.kind.value]} {plain(part.id)}: {now}",
        kind=kind,
        blocks=(_identity(part), *(table for table in tables if table is not None)),
        end="" if found.faults else "no check has said anything of it",
    )


def _identity(part: Part) -> FactBlock:
    """The model and the names of a part."""
    names = {"gpu": "serial, part number, VBIOS", "nic": "board, firmware"}
    told = (
        ("model", plain(part.model)),
        (names.get(part.kind.value, "serial, firmware"), plain(", ".join(part.names))),
    )
    return FactBlock(rows=tuple(row for row in told if row[1]))


def _gone(stays: Sequence[Stay], clock: Clock) -> str:
    if not stays:
        return "never seen"
    last = stays[-1]
    return f"not seen since {' '.join(clock.at(last.last).split())}, in {name(last.host)}"


def _stays(found: Passport, clock: Clock) -> TableBlock:
    several = (
        "several parts have this id, or a place could not be read when it had gone: what is told "
        "here may be of more than one part"
    )
    return TableBlock(
        title="Where it was",
        heads=("from", "to", "host", "slot"),
        rows=tuple(
            (
                Cell(clock.at(stay.first)),
                Cell("now" if stay.open else clock.at(stay.last), "ok" if stay.open else ""),
                Cell(name(stay.host)),
                Cell(plain(stay.slot)),
            )
            for stay in found.stays
        ),
        note=several if found.at_once else "",
    )


def _faults(found: Passport, clock: Clock) -> TableBlock | None:
    rows = tuple(
        (
            Cell(clock.at(fault.first)),
            _until(fault, clock),
            Cell(name(fault.host)),
            Cell(fault.verdict.value.upper(), _verdict_tone(fault.verdict)),
            Cell(_difference(fault.finding)),
        )
        for fault in found.faults
    )
    heads = ("from", "to", "host", "", "what")
    return TableBlock(title="Faults", heads=heads, rows=rows) if rows else None


def _until(fault: PartFault, clock: Clock) -> Cell:
    if fault.by is not None:
        return Cell(_by(fault.by, clock), "ok")
    return Cell("now", "fail") if fault.open else Cell(clock.at(fault.last))


def _verdict_tone(verdict: Verdict) -> str:
    return {Verdict.FAIL: "fail", Verdict.UNKNOWN: "unknown"}.get(verdict, "waived")


def _difference(finding: Finding) -> str:
    what, why = difference(finding)
    return f"{brief(finding.check)}: {what}" + (f"; {brief(why, LONGEST)}" if why else "")


def _counters(stays: Sequence[Stay]) -> TableBlock | None:
    """What was counted in each place, when it came and when it was last seen there."""
    rows = tuple(
        (
            Cell(" ".join(filter(None, (plain(each.name), plain(each.subject))))),
            Cell(name(stay.host)),
            Cell(f"{each.before:,}", right=True),
            Cell(f"{each.after:,}", "fail" if each.after > each.before else "", right=True),
        )
        for stay in stays
        for each in stay.counters
    )
    heads = ("counter", "in", "when it came", "last read")
    note = "what a part has counted goes with it; a counter that is not listed was 0"
    return TableBlock(title="Counters", heads=heads, rows=rows, note=note) if rows else None


def _points(found: Passport, clock: Clock) -> TableBlock | None:
    rows = tuple(
        (
            Cell(clock.at(point.moment.at)),
            Cell(name(point.host)),
            Cell(" ".join(filter(None, (plain(point.name), plain(point.subject))))),
            Cell(f"{point.value:,}", right=True),
        )
        for point in found.points[-MOST_POINTS:]
    )
    heads = ("when", "host", "counter", "value")
    return TableBlock(title="When they moved", heads=heads, rows=rows) if rows else None


MOST_POINTS = 40
