"""Findings about a subject with several facts. One finding names every fact that differs, another
one every fact that is unknown, so that a waiver accepts only values that were read. `each_fact`
makes one finding of each fact, if its value says which fact it is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import READ_AGAIN
from nodevet.evidence.core import NOT_ASKED, Record
from nodevet.model import (
    FAIL,
    OK,
    UNKNOWN,
    Finding,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)


class Aspect(NamedTuple):
    """The verdict about one fact of a subject."""

    verdict: Verdict
    name: str
    expected: Value = None
    actual: Value = None
    why: str = ""
    advice: str = ""


def aspect_if(
    name: str, right: bool, *, expected: Value, actual: Value, advice: str = ""
) -> Aspect:
    verdict = OK if right else FAIL
    return Aspect(verdict, name, expected, actual, advice="" if right else advice)


def unknown_aspect(name: str, why: str) -> Aspect:
    """The aspect of a fact that is not known."""
    return Aspect(UNKNOWN, name, why=why)


def unread_aspect(record: Record, field: str) -> Aspect:
    return unknown_aspect(field, f"{field}: {record.why(field)}")


def text_aspects(record: Record, **allowed: Words | None) -> Iterator[Aspect]:
    """Texts of a record: whether each field of these names has an allowed value. None: any."""
    for field, words in allowed.items():
        actual = getattr(record, field)
        if words is not None and actual is None:
            yield unread_aspect(record, field)
        elif words is not None:
            yield aspect_if(
                field, matches(actual, words), expected=words_text(words), actual=actual
            )


def aspect_findings(
    subject: Subject,
    aspects: Iterable[Aspect],
    details: Mapping[str, str] | None = None,
    *,
    advice: Callable[[list[str]], str] | None = None,
    listed: bool = False,
    unit: str = "",
    **rest: Any,
) -> Iterator[Finding]:
    """The findings of a subject; none without aspects.

    `advice`: makes the advice from the names of the failed aspects; by default each aspect has its
    own. `listed`: joins values without their names. `rest`: more fields of the failure.
    """
    bad, doubtful, inapplicable, good = _by_verdict(aspects)
    shared: dict[str, Any] = {"details": details} if details else {}
    if bad:
        yield fail(
            subject,
            **_values(bad, listed),
            unit=unit,
            why=reasons_text(aspect.why for aspect in bad),
            advice=advice([aspect.name for aspect in bad]) if advice else _advice(bad),
            **shared,
            **rest,
        )
    if doubtful:
        reasons = {aspect.why for aspect in doubtful}
        advice_again = READ_AGAIN if reasons == {NOT_ASKED} else ""
        yield unknown(
            subject,
            why=reasons_text(aspect.why for aspect in doubtful),
            advice=advice_again,
            **shared,
        )
    if good and not bad and not doubtful:
        why = reasons_text(aspect.why for aspect in good)
        yield ok(subject, **_values(good, listed), unit=unit, why=why, **shared)
    if inapplicable:
        yield not_applicable(
            subject, why=reasons_text(aspect.why for aspect in inapplicable), **shared
        )


def each_fact(facts: Iterable[Finding]) -> Iterator[Finding]:
    """The findings about a part: each failure on its own, and one finding for all unknown facts. If
    all facts are ok, the last one."""
    listed = list(facts)
    doubtful = [fact for fact in listed if fact.verdict is UNKNOWN]
    wrong = [fact for fact in listed if fact.verdict not in (OK, UNKNOWN)]
    if doubtful:
        wrong.append(replace(doubtful[0], why=reasons_text(aspect.why for aspect in doubtful)))
    yield from wrong or listed[-1:]


def _by_verdict(aspects: Iterable[Aspect]) -> tuple[list[Aspect], ...]:
    """The aspects in four lists: failed, unknown, not applicable, ok."""
    groups: tuple[list[Aspect], ...] = ([], [], [], [])
    bad, doubtful, inapplicable, good = groups
    for aspect in aspects:
        if aspect.verdict is OK:
            good.append(aspect)
        elif aspect.verdict is FAIL:
            bad.append(aspect)
        elif aspect.verdict is UNKNOWN:
            doubtful.append(aspect)
        else:
            inapplicable.append(aspect)
    return groups


def _advice(bad: Iterable[Aspect]) -> str:
    return ". ".join(dict.fromkeys(aspect.advice for aspect in bad if aspect.advice))


def _values(aspects: Sequence[Aspect], listed: bool) -> dict[str, Value]:
    if listed:
        sides = zip(
            *((str(aspect.expected), str(aspect.actual)) for aspect in aspects), strict=True
        )
        expected, actual = (", ".join(dict.fromkeys(side)) for side in sides)
        return {"expected": expected, "actual": actual}
    return {
        "expected": _by_name([(aspect.name, aspect.expected) for aspect in aspects]),
        "actual": _by_name([(aspect.name, aspect.actual) for aspect in aspects]),
    }


def _by_name(pairs: Sequence[tuple[str, Value]]) -> Value:
    """The values by name; a list if several have the same name."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    by_name: dict[str, list[Value]] = {}
    for name, value in pairs:
        by_name.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in by_name.items()}


def reasons_text(reasons: Iterable[str]) -> str:
    """The reasons in one text, without repetition."""
    return "; ".join(dict.fromkeys(filter(None, reasons)))
