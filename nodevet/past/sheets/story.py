"""The story of a host as a sheet. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.age import seconds_of
from nodevet.base.printable import brief, plain
from nodevet.model import Finding, HostFacts, HostOutcome, Severity
from nodevet.past.sheets.findings import span_table
from nodevet.past.sheets.fixes import row_keys, tone, what_changed, words
from nodevet.past.sheets.parts import KINDS, at_text, short
from nodevet.past.story import FixedSince, HostStory, Night, StoryEvent, StoryKind
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, FactBlock, Sheet, TableBlock
from nodevet.sheet.text import count, name
from nodevet.store.records.model import (
    FindingSpan,
    FixProof,
    PartPlace,
    RecordedRun,
    RunState,
)
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


def story_sheet(story: HostStory, clock: Clock) -> Sheet:
    """The story of a host, its events from the oldest on."""
    last = story.nights[-1] if story.nights else None
    nights = story.nights[-MOST_NIGHTS:]
    facts = [
        *_visits_text(story, clock),
        ("nights", _marks(nights)),
        ("baseline", plain(story.baseline)),
        ("groups", plain(", ".join(story.groups))),
        *_facts(story.facts),
        ("parts", _parts_text(story.parts)),
    ]
    parts: list[TableBlock] = []
    if last:
        run = _run_of_night(last.run, last.at)
        parts += _wrong(story.open, story.baseline, run, clock)
        parts += _fixed(story.fixed, run, clock)
    parts.append(
        TableBlock(
            title="What happened",
            heads=("when", "", "what"),
            rows=tuple(_events(story.events, clock)),
        )
    )
    return Sheet(
        title=f"{name(story.host)}: {last.outcome.words if last else 'in no recorded run'}",
        kind="history",
        blocks=(FactBlock(rows=tuple(row for row in facts if row[1])), *parts),
    )


def _wrong(
    spans: Sequence[FindingSpan], baseline: str, run: RecordedRun, clock: Clock
) -> Iterator[TableBlock]:
    """What is wrong by the baseline that judged the host last; then a table for each other
    baseline."""
    by_baseline: dict[str, list[FindingSpan]] = {baseline: []}
    for span in spans:
        by_baseline.setdefault(span.baseline, []).append(span)
    for name_of, group in by_baseline.items():
        title = "What is wrong now"
        if name_of != baseline:
            last = max((span.last.at for span in group), key=lambda at: seconds_of(at) or 0.0)
            when = at_text(last, clock)
            title = f"Failures by baseline {plain(name_of)}, last judged {when}"
        if table := span_table(title, run, group, clock):
            yield table


def _fixed(fixed: Sequence[FixedSince], run: RecordedRun, clock: Clock) -> Iterator[TableBlock]:
    """The troubles of the last visit that are fixed since: a table for each fix."""
    by_proof: dict[str, list[FindingSpan]] = {}
    for fixed_span in fixed:
        by_proof.setdefault(proof_text(fixed_span.by, clock), []).append(fixed_span.finding)
    for heading, group in by_proof.items():
        title = f"{heading[0].upper()}{heading[1:]}"
        if table := span_table(title, run, group, clock, over=True):
            yield table


def proof_text(proof: FixProof, clock: Clock) -> str:
    return f"fixed by {_plan_text(proof.plan)} at {at_text(proof.at, clock)}, not vetted since"


def _plan_text(name: str) -> str:
    return f"plan {brief(name)}" if name else "a plan"


def _visits_text(story: HostStory, clock: Clock) -> Iterator[tuple[str, str]]:
    """When the host was visited, and in how many runs."""
    if not story.nights:
        return
    runs = count(len(story.nights), "run")
    since = at_text(story.nights[0].at, clock)
    yield "last seen", clock.moment_and_age(story.nights[-1].at)
    boots = count(story.boots, "boot")
    yield "runs", f"{runs} since {since}, vetted in {story.vetted:,}, {boots}"


def _run_of_night(run: str, at: str) -> RecordedRun:
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
    """`••✕✕•`, a mark for each run."""
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


def _parts_text(places: Iterable[PartPlace]) -> str:
    numbers: dict[str, int] = {}
    for place in places:
        kind = KINDS[place.part.kind.value]
        numbers[kind] = numbers.get(kind, 0) + 1
    return ", ".join(count(number, kind) for kind, number in numbers.items())


def _events(events: Sequence[StoryEvent], clock: Clock) -> Iterator[tuple[Cell, ...]]:
    """A row for each event; alike findings of one moment share a row, and so do alike changes."""
    changes = iter(row_keys([e.action for e in events if e.action and e.finding is None]))
    groups: dict[object, list[StoryEvent]] = {}
    for place, event in enumerate(events):
        finding = event.finding
        key: object = place
        if finding is not None:
            key = (event.run, event.kind, finding.check, difference(finding), event.since)
        elif event.action is not None:
            key = next(changes)
        groups.setdefault(key, []).append(event)
    shown = ""
    for group in groups.values():
        first = group[0]
        when = clock.moment_text(first.at)
        yield (
            Cell("" if when == shown else when),
            Cell("" if _is_change(first) else first.kind.value, _tone(first)),
            Cell(_event_text(group, clock)),
        )
        shown = when


def _is_change(event: StoryEvent) -> bool:
    """Whether it is a change of a run of fixes, which is listed below that run."""
    return event.action is not None and event.finding is None


def _tone(event: StoryEvent) -> str:
    if event.outcome:
        return tone(event.outcome)
    if event.kind is StoryKind.FAILS and event.finding:
        return "fail" if event.finding.severity is Severity.CRITICAL else "warning"
    return TONES.get(event.kind, "quiet")


def _event_text(group: Sequence[StoryEvent], clock: Clock) -> str:
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
        return what_changed([event_.action for event_ in group if event_.action])
    if event.finding is None:
        return brief(event.text, LONGEST)
    text = _finding_text([event_.finding for event_ in group if event_.finding])
    if event.since:
        text += f"  (since {at_text(event.since, clock)})"
    if event.action is not None:
        text += f"; by {_plan_text(event.action.plan)}, {at_text(event.action.at, clock)}"
    if event.by is not None:
        text += f"; by {_plan_text(event.by.plan)}, which verified it"
    if event.after_plan:
        text += f"; came back after the fix by {_plan_text(event.after_plan)}"
    return text + (f"; {event.text}" if event.text else "")


def _finding_text(alike: Sequence[Finding]) -> str:
    """`power_limit: 500 W, expected 700 W (GPU 0-7)`."""
    first = alike[0]
    what, _ = difference(first)
    subjects, _ = subjects_of([("", finding) for finding in alike])
    return f"{brief(first.check)}: {what}" + (f" ({subjects})" if subjects else "")
