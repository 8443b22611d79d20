"""Rules of a site: what nodevet asks the probe about a text, and how it judges the answers."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from nodevet.checking.aspects import Aspect, aspect_if, unknown_aspect
from nodevet.checking.named import READ_AGAIN
from nodevet.evidence.core import NOT_ASKED, Section
from nodevet.evidence.questions import TextAnswer
from nodevet.model import FieldError, Finding, Severity, Subject, unknown

QUESTIONS = (("text", "equals"), ("contains", "contains"), ("pattern", "pattern"))
"""The fields of a rule, and the probe's names for them."""
LONGEST = 1000  # characters of a text that nodevet asks for
RuleName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$",
        title="a rule's name of letters, digits, _, . and -",
    ),
]


class SiteRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of every site rule."""

    description: Annotated[str, Meta(max_length=LONGEST)] = ""
    """The purpose of the rule, which reports show."""
    severity: Severity | None = None
    """The severity of a failure; by default the check's."""


class RuleParams(Protocol):
    """The Params of a check that takes rules."""

    @property
    def rules(self) -> Mapping[str, SiteRule]: ...


def severities(params: RuleParams) -> Mapping[str, Severity]:
    """The severities of the rules that give their own."""
    return {name: rule.severity for name, rule in params.rules.items() if rule.severity}


def rule_details(rule: SiteRule, **details: str) -> dict[str, str]:
    """The details of a rule's finding."""
    return {"description": rule.description, **details} if rule.description else details


def check_texts(rule: Any) -> None:
    """Raises FieldError for a text that nodevet cannot ask the probe for."""
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
                    raise FieldError(
                        f"is not a valid regular expression: {error}", *where
                    ) from None


def texts(rule: Any, field: str) -> tuple[str, ...]:
    value: str | tuple[str, ...] | None = getattr(rule, field)
    return () if value is None else (value,) if isinstance(value, str) else value


def questions(rule: Any) -> dict[str, list[str]]:
    """The questions for the probe about the text."""
    by_kind = {word: list(texts(rule, field)) for field, word in QUESTIONS}
    return {word: texts_of_kind for word, texts_of_kind in by_kind.items() if texts_of_kind}


def text_aspects(
    rule: Any, answers: Mapping[tuple[str, str], TextAnswer], otherwise: Mapping[str, str]
) -> Iterator[Aspect]:
    """The aspects: whether each text of a rule was found. `otherwise`: the actual value if not, by
    field."""
    for field, word in QUESTIONS:
        for text in texts(rule, field):
            answer = answers.get((word, text))
            if answer is None:
                yield unknown_aspect(field, NOT_ASKED)
            elif answer.found is None:
                yield unknown_aspect(field, f"{field}: {answer.why('found')}")
            else:
                actual = text if answer.found else otherwise[field]
                yield aspect_if(field, answer.found, expected=text, actual=actual)


def each_rule(
    section: Section[Any], rules: Mapping[str, Any], *, kind: str, by: str, shown: str
) -> Iterator[tuple[Subject, Any, Any, Mapping[str, str]] | Finding]:
    """For every rule: its subject, the rule, the item that was read for it, and its details; or the
    unknown finding that says why the rule cannot be judged. Never empty.

    `kind`: the subjects' kind, whose plural is the name of the section's list; `by`: the field that
    connects a rule with its item; `shown`: the name of that field in the details.
    """
    listed = f"{kind}s"
    if not rules:
        yield unknown(why="the baseline names nothing to check")
    items = getattr(section.data, listed) if section.data else None
    by_value = {getattr(item, by): item for item in items or ()}
    for name, rule in rules.items():
        subject, value = Subject(kind=kind, id=name), getattr(rule, by)
        details = rule_details(rule, **{shown: value})
        if section.data is None:
            yield unknown(subject, why=f"{listed}: {section.why}", details=details)
        elif items is None:
            why = f"{listed}: {section.data.why(listed)}"
            yield unknown(subject, why=why, details=details)
        elif value not in by_value:
            yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN, details=details)
        else:
            yield subject, rule, by_value[value], details
