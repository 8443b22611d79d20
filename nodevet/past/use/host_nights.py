"""Judge the recorded nights of one host, and nothing again that is decided.

A check that passes without any reading (`Record.volatile`) passes whatever they are: no check
passes because a value is missing (tests/checks/test_soundness.py). It is judged again once the
steady values of a section that it reads change. Any other check is also judged again once a reading
that it reads changes. A project's own check is judged every night: its `reads` may lack something.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.base.last_few import LastFew
from nodevet.checking.facts import facts_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.sections import sections
from nodevet.model import Finding, Host, Severity, Verdict
from nodevet.model.baseline import Baseline
from nodevet.store.documents import EARLIER, OpenSplit
from nodevet.store.evidence import KeptEvidence
from nodevet.vet.use.asks import ALWAYS
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import chosen_baseline, judge_by

PASSES = frozenset({Verdict.OK, Verdict.NOT_APPLICABLE})
_ANY = typed.decoder(Any)
_ENCODE = msgspec.json.Encoder().encode


class HostFailures(NamedTuple):
    """What a host fails in one night."""

    gpus: int
    fails: tuple[str, ...]  # keys of the failures at or above the bar


class _Answer(NamedTuple):
    """What one check says."""

    passes: bool  # all its findings
    fails: tuple[str, ...]


class HostNights:
    """The nights of one host, in any order."""

    def __init__(self, host: str, context: VetContext, bar: Severity, alike: LastFew) -> None:
        """`bar`: the least severity of a failure; `alike`: sections of other hosts, to reuse."""
        self._host, self._context, self._bar, self._alike = host, context, bar, alike
        self._nodes: dict[Hashable, _Node] = {}
        self._judges: dict[str, _Judge] = {}

    def failures(self, kept: KeptEvidence, groups: frozenset[str]) -> HostFailures:
        """The failures of one night. Raises EvidenceError."""
        split = kept.split(self._alike)
        if split is None:
            evidence = kept.open_evidence(self._alike)
            node = self._look(evidence, groups)
            return HostFailures(node.gpus, node.judge.fails(evidence) if node.judge else ())
        key = (groups, kept.hashes(ALWAYS))
        if key not in self._nodes:
            self._nodes[key] = self._look(split.steady, groups)
        node = self._nodes[key]
        return HostFailures(node.gpus, node.judge.fails_in(kept, split) if node.judge else ())

    def _look(self, evidence: Evidence, groups: frozenset[str]) -> "_Node":
        host = Host(name=self._host, groups=groups)
        baseline, _ = chosen_baseline(evidence, host, self._context)
        judge = None
        if baseline:
            new = _Judge(baseline, self._host, self._context, self._bar)
            judge = self._judges.setdefault(baseline.path, new)
        return _Node(judge, sum(facts_of(evidence).gpus.values()))


class _Judge:
    """Judges the nights of one host by one baseline, and remembers the answers."""

    def __init__(self, baseline: Baseline, host: str, context: VetContext, bar: Severity) -> None:
        self._baseline, self._host, self._context, self._bar = baseline, host, context, bar
        self._checks = tuple(wish.check for wish in baseline.expectations)
        own = frozenset(context.catalog.own_checks)
        self._own = frozenset(self._checks) & own
        self._reads = {
            check: context.catalog.check(check).reads for check in self._checks if check not in own
        }
        self._answers: dict[Hashable, _Answer] = {}

    def fails(self, evidence: Evidence) -> tuple[str, ...]:
        """What a night fails; nothing is remembered."""
        return self._in_order(self._judge(evidence, self._checks))

    def fails_in(self, kept: KeptEvidence, split: OpenSplit) -> tuple[str, ...]:
        """What a night fails, by what other nights told."""
        keys: dict[str, Hashable] = {
            check: (check, kept.hashes(_places(reads))) for check, reads in self._reads.items()
        }
        answers = self._remembered(split.steady, keys)
        if unsure := [check for check, answer in answers.items() if not answer.passes]:
            rest = _ANY.decode(kept.volatile)
            with_readings = {
                check: (keys[check], _readings(self._reads[check], split.evidence, rest))
                for check in unsure
            }
            answers |= self._remembered(split.evidence, with_readings)
        return self._in_order(answers | self._judge(split.evidence, self._own))

    def _in_order(self, answers: Mapping[str, _Answer]) -> tuple[str, ...]:
        return tuple(key for check in self._checks for key in answers[check].fails)

    def _remembered(self, evidence: Evidence, keys: Mapping[str, Hashable]) -> dict[str, _Answer]:
        """The answer of each check, by a key that holds everything that it depends on."""
        new = [check for check, key in keys.items() if key not in self._answers]
        for check, answer in self._judge(evidence, new).items():
            self._answers[keys[check]] = answer
        return {check: self._answers[key] for check, key in keys.items()}

    def _judge(self, evidence: Evidence, checks: Collection[str]) -> dict[str, _Answer]:
        if not checks:
            return {}
        wishes = tuple(wish for wish in self._baseline.expectations if wish.check in checks)
        narrowed = replace(self._baseline, expectations=wishes)
        findings: dict[str, list[Finding]] = {check: [] for check in checks}
        for finding in judge_by(narrowed, evidence, self._host, self._context):
            findings[finding.check].append(finding)
        return {check: self._answer(of_check) for check, of_check in findings.items()}

    def _answer(self, findings: Sequence[Finding]) -> _Answer:
        passes = PASSES.issuperset(finding.verdict for finding in findings)
        return _Answer(passes, tuple(_failing(findings, self._bar)))


class _Node(NamedTuple):
    """What a host is in one night."""

    judge: _Judge | None  # None: no baseline fits
    gpus: int


def _failing(findings: Iterable[Finding], bar: Severity) -> Iterator[str]:
    """The keys of the failures at or above a bar, each once; a finding in shadow is none."""
    yield from {
        finding.key: None
        for finding in findings
        if finding.verdict is Verdict.FAIL
        and finding.severity is not Severity.SHADOW
        and finding.severity.rank >= bar.rank
    }


@cache
def _places(reads: tuple[str, ...]) -> tuple[str, ...]:
    """The sections of these paths, as the store names them."""
    return tuple(sorted(set(map(_place, reads))))


def _place(path: str) -> str:
    """`gpu` of `gpu.gpus[].name`, `earlier.pci` of `earlier.pci.functions[].aer`."""
    prefix = EARLIER if path.startswith(EARLIER) else ""
    return prefix + path.removeprefix(EARLIER).partition(".")[0]


def _readings(reads: tuple[str, ...], evidence: Evidence, rest: Any) -> Hashable:
    """The readings among these paths, and whether their sections are valid."""
    statuses = (_status(evidence, place) for place in _places(reads))
    return (*statuses, _ENCODE([_reading(rest, path) for path in reads]))


def _status(evidence: Evidence, place: str) -> str | None:
    all_sections = evidence.earlier if place.startswith(EARLIER) else evidence.sections
    record = sections().get(place.removeprefix(EARLIER))
    return None if all_sections is None or record is None else all_sections[record].status


def _reading(rest: Any, path: str) -> Any:
    """What a path names among the readings of a visit, as nodevet.store.documents keeps them; all
    readings of the section in an earlier reading."""
    place, fields = _steps(path)
    if place.startswith(EARLIER):
        return (rest.get("earlier") or {}).get(place.removeprefix(EARLIER))
    value = rest["sections"].get(place, {}).get("data")
    for field in fields:
        if not isinstance(value, dict):  # rows of a list, or what was cut out as a whole
            break
        value = value.get(field)
    return value


@cache
def _steps(path: str) -> tuple[str, tuple[str, ...]]:
    return _place(path), tuple(path.replace("[]", "").split(".")[1:])
