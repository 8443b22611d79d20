"""The present state of a fleet's hosts, and the outcomes of their last nights. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nodevet.base.printable import plain
from nodevet.model import HostOutcome
from nodevet.past.fixed_by import unix_time
from nodevet.past.sheets.story import MARKS
from nodevet.past.site.clock import CLOCK
from nodevet.sheet.text import count, name
from nodevet.store.records.latest import HostNow
from nodevet.store.records.model import FindingSpan, RecordedRun, RunState

GONE = "no longer visited"
ALWAYS = ("fail", "unknown", "unreachable", "ok")  # words that pages show even without a host
OTHERS = (outcome.words for outcome in HostOutcome if outcome.value not in ALWAYS)
ORDER = (*ALWAYS[:-1], *OTHERS, "ok", GONE)
TONES = {"fail": "fail", "unknown": "unknown", "ok": "ok", "waived": "waived", GONE: "quiet"}
JUDGED = ("fail", "ok", "waived", GONE)  # or nobody expects a verdict
MARKED = 14  # runs
LONGEST_AGO = 14 * 86400.0  # seconds before the newest run
MOST_CHECKS = 6  # that a line names


class HostLine(msgspec.Struct, frozen=True, kw_only=True):
    """A host in the list of hosts. Texts are printable."""

    host: str  # as it is recorded
    label: str
    word: str  # an outcome, or GONE
    what: str  # the checks that fail, or why it was not vetted
    at: str
    run: str  # the id of its last run
    marks: str  # `••✕`, a mark for each of the last runs
    groups: str

    @property
    def tone(self) -> str:
        return TONES.get(self.word, "unreached")


def fleet(
    hosts: Iterable[HostNow],
    runs: Sequence[RecordedRun],
    outcomes: Mapping[str, Mapping[str, HostOutcome]],
    troubles: Iterable[FindingSpan],
) -> list[HostLine]:
    """A line for each host, the worst first. `runs`: all runs, the newest first; `outcomes`: by
    host, its outcome in the newest runs; `troubles`: findings that still fail or are unknown."""
    checks: dict[str, dict[str, None]] = {}
    for span in troubles:
        checks.setdefault(span.host, {})[plain(span.check)] = None
    nights = LastNights(runs)
    marked = [run.id for run in reversed(runs[:MARKED])]
    lines = []
    for host in hosts:
        ended = outcomes.get(host.host, {})
        gone = nights.left_out(host, ended)
        line = HostLine(
            host=host.host,
            label=name(host.host),
            word=GONE if gone else host.outcome.words,
            what=plain(host.why) or _checks_text(list(checks.get(host.host, ()))),
            at=CLOCK.moment_text(host.at),
            run=host.run,
            marks="".join(map(_mark, map(ended.get, marked))).strip(),
            groups=plain(", ".join(host.groups)),
        )
        lines.append(line)
    return sorted(lines, key=lambda line: ORDER.index(line.word))


class LastNights:
    """The newest night of each sweep. A night is a complete run that visited more than half as many
    hosts as the largest of the sweep's newest runs. `last`: the night, by the name of the sweep."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._place = {run.id: place for place, run in enumerate(runs)}
        self._series = {run.id: run.series for run in runs}
        self._newest = max((unix_time(run.started) for run in runs), default=0.0)
        self.last: dict[str, RecordedRun] = {}
        for series in dict.fromkeys(run.series for run in runs if run.series):
            whole = [run for run in runs if run.series == series and _is_whole(run)][:MARKED]
            most = max((run.visited for run in whole), default=0)
            newest = next((run for run in whole if run.visited * 2 > most), None)
            if newest is not None:
                self.last[series] = newest

    def left_out(self, host: HostNow, ended: Iterable[str]) -> bool:
        """Whether the newest night of the sweep that visited a host did not visit it, or no run of
        the last two weeks did. `ended`: the newest runs that visited it."""
        if unix_time(host.at) < self._newest - LONGEST_AGO:
            return True
        visited = sorted({host.run, *ended} & self._place.keys(), key=self._place.__getitem__)
        swept = next((self._series[run] for run in visited if self._series[run]), "")
        night = self.last.get(swept)
        return night is not None and self._place[host.run] > self._place[night.id]


def _is_whole(run: RecordedRun) -> bool:
    return run.state is RunState.COMPLETE and run.visited > 0


def _mark(outcome: HostOutcome | None) -> str:
    return " " if outcome is None else MARKS.get(outcome, "–")


def _checks_text(checks: Sequence[str]) -> str:
    more = len(checks) - MOST_CHECKS
    return ", ".join(checks[:MOST_CHECKS]) + (f" and {more} more" if more > 0 else "")


def counts(lines: Iterable[HostLine]) -> list[tuple[str, int]]:
    """The number of hosts of each outcome, the worst first."""
    numbers = Counter(line.word for line in lines)
    return [(word, numbers[word]) for word in ORDER if numbers[word] or word in ALWAYS]


def headline(numbers: Iterable[tuple[str, int]]) -> str:
    """What the counts of all hosts say in a few words.

    >>> headline([("fail", 2), ("unreachable", 1), ("ok", 4)])
    '2 of 7 hosts fail, 1 not judged'
    """
    by_word = dict(numbers)
    total = sum(by_word.values())
    if not total:
        return "no host is recorded"
    unjudged = sum(number for word, number in by_word.items() if word not in JUDGED)
    more = f", {unjudged:,} not judged" if unjudged else ""
    return f"{by_word.get('fail', 0):,} of {count(total, 'host')} fail{more}"
