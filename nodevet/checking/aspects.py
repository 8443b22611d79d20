"""A subject of which several things are judged: what differs is one finding, what is unknown
another, so that a waiver accepts what it names and nothing that was not read."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nodevet.evidence.core import Record
from nodevet.model import Finding, Subject, Value, Verdict, fail, not_applicable, ok, unknown


class Aspect(NamedTuple):
    """What is said of one thing of a subject."""

    verdict: Verdict
    name: str
    expected: Value = None
    actual: Value = None
    why: str = ""
    advice: str = ""


def met(name: str, right: bool, *, expected: Value, actual: Value, advice: str = "") -> Aspect:
    verdict = Verdict.OK if right else Verdict.FAIL
    return Aspect(verdict, name, expected, actual, advice="" if right else advice)


def unread_aspect(record: Record, field: str) -> Aspect:
    return Aspect(Verdict.UNKNOWN, field, why=f"{field}: {record.why(field)}")


def judged(
    subject: Subject, aspects: Iterable[Aspect], details: Mapping[str, str]
) -> Iterator[Finding]:
    """The findings of a subject; none if nothing was judged."""
    found = list(aspects)
    bad, doubtful, beside, good = (
        [aspect for aspect in found if aspect.verdict is verdict]
        for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE, Verdict.OK)
    )
    if bad:
        yield fail(
            subject,
            expected={aspect.name: aspect.expected for aspect in bad},
            actual={aspect.name: aspect.actual for aspect in bad},
            why=told(aspect.why for aspect in bad),
            advice=". ".join(dict.fromkeys(aspect.advice for aspect in bad if aspect.advice)),
            details=details,
        )
    if doubtful:
        yield unknown(subject, why=told(aspect.why for aspect in doubtful))
    if good and not bad and not doubtful:
        yield ok(
            subject,
            expected={aspect.name: aspect.expected for aspect in good},
            actual={aspect.name: aspect.actual for aspect in good},
        )
    if beside:
        yield not_applicable(subject, why=told(aspect.why for aspect in beside))


def told(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons)))
