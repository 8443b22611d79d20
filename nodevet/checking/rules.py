"""A site's own rules: what they ask of a text, and the finding that comes of all answers to one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from nodevet.checking.named import READ_AGAIN
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.questions import TextAnswer
from nodevet.model import FieldError, Finding, Severity, Subject, Value, fail, ok, unknown

QUESTIONS = (("text", "equals"), ("contains", "contains"), ("pattern", "pattern"))
"""The fields of a rule, and what the probe calls them."""
LONGEST = 1000  # characters of a text that is asked for
RuleName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$",
        title="a rule's name of letters, digits, _, . and -",
    ),
]
NOTHING = "the baseline names nothing to check"


class SiteRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every rule of a site's own may say."""

    description: Annotated[str, Meta(max_length=LONGEST)] = ""
    """What it is for: reports show it."""
    severity: Severity | None = None
    """How severe its failure is; without it that of the check."""


class RuleParams(Protocol):
    """Params of a check that takes rules."""

    @property
    def rules(self) -> Mapping[str, SiteRule]: ...


class RuleAnswer(Struct, frozen=True, kw_only=True):
    """One thing that a rule wants. `right` is None if it was not read, and `why` says so."""

    name: str
    expected: Value
    actual: Value = None
    right: bool | None = None
    why: str = ""


def severities(params: RuleParams) -> Mapping[str, Severity]:
    """Of the rules that say it themselves."""
    return {name: rule.severity for name, rule in params.rules.items() if rule.severity}


def described(rule: SiteRule, **details: str) -> dict[str, str]:
    """The details of a rule's finding."""
    return {"description": rule.description, **details} if rule.description else details


def check_texts(rule: Any) -> None:
    """Raise FieldError where a text of a rule cannot be asked for."""
    for field, _ in QUESTIONS:
        for place, text in enumerate(texts(rule, field)):
            where = (field,) if field == "text" else (field, place)
            if not text.strip():
                raise FieldError("must not be empty", *where)
            if len(text) > LONGEST:
                raise FieldError(f"is longer than {LONGEST} characters", *where)
            if field == "pattern":
                try:
                    re.compile(text)
                except (re.error, OverflowError, RecursionError) as error:
                    raise FieldError(f"is no regular expression: {error}", *where) from None


def texts(rule: Any, field: str) -> tuple[str, ...]:
    value: str | tuple[str, ...] | None = getattr(rule, field)
    return () if value is None else (value,) if isinstance(value, str) else value


def questions(rule: Any) -> dict[str, list[str]]:
    """What the probe is asked of the text."""
    asked = {word: list(texts(rule, field)) for field, word in QUESTIONS}
    return {word: some for word, some in asked.items() if some}


def answered(
    rule: Any, found: Mapping[tuple[str, str], TextAnswer], otherwise: Mapping[str, str]
) -> Iterator[RuleAnswer]:
    """What a text answers; `otherwise`: what is so of it if it is not as wanted, by field."""
    for field, word in QUESTIONS:
        for text in texts(rule, field):
            answer = found.get((word, text))
            if answer is None:
                yield RuleAnswer(name=field, expected=text, why=NOT_ASKED)
            elif answer.found is None:
                yield RuleAnswer(name=field, expected=text, why=answer.why("found"))
            else:
                actual = text if answer.found else otherwise[field]
                yield RuleAnswer(name=field, expected=text, actual=actual, right=answer.found)


def finding(
    subject: Subject, answers: Sequence[RuleAnswer], advice: str, why: str = "", **rest: Any
) -> Finding:
    """One finding: all that differs, else what was not read, else all that is right."""
    bad = [answer for answer in answers if answer.right is False]
    unread = [answer for answer in answers if answer.right is None]
    if unread and not bad:
        if all(answer.why == NOT_ASKED for answer in unread):
            return not_asked(subject, **rest)
        told = dict.fromkeys(f"{answer.name}: {answer.why}" for answer in unread)
        return unknown(subject, why="; ".join(told), **rest)
    return (fail if bad else ok)(
        subject,
        expected=_shown([(answer.name, answer.expected) for answer in bad or answers]),
        actual=_shown([(answer.name, answer.actual) for answer in bad or answers]),
        advice=advice if bad else "",
        why=why,
        **rest,
    )


def not_asked(subject: Subject, **rest: Any) -> Finding:
    return unknown(subject, why=NOT_ASKED, advice=READ_AGAIN, **rest)


def _shown(pairs: Sequence[tuple[str, Value]]) -> Value:
    """By name; several of one name as a list."""
    found: dict[str, list[Value]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {
        name: values[0] if len(values) == 1 else list(dict.fromkeys(values))
        for name, values in found.items()
    }
