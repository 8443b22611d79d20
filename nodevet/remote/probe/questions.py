"""A baseline's questions about the text of a file or command: is it equal, does it contain a text,
does it match a pattern? The text stays on the node."""

import re

from nodevet.remote.probe.cpu_limit import within
from nodevet.remote.probe.files import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

KINDS = ("equals", "contains", "pattern")
PATIENCE = 1.0  # seconds of CPU time for one pattern


def merge_questions(questions: "Iterable[dict[str, Any]]", key: str) -> "list[dict[str, Any]]":
    """One question for each `key`: lists joined, the maximum of flags and numbers.

    >>> merge_questions([{"p": "/a", "contains": ["x"]}, {"p": "/a", "contains": ["y"]}], "p")
    [{'p': '/a', 'contains': ['x', 'y']}]
    """
    by_key: "dict[str, dict[str, Any]]" = {}
    for question in questions:
        merged = by_key.setdefault(question[key], {})
        for name, value in question.items():
            if isinstance(value, list):
                items = merged.setdefault(name, [])
                items += [item for item in value if item not in items]
            else:
                merged[name] = max(merged.get(name, value), value)
    return [by_key[name] for name in sorted(by_key)]


def matches(question: "dict[str, Any]", text: "str | None", why: "Any") -> "list[Reading]":
    """The answers about a text; `why`: the reason if there is no text."""
    answers = []
    for kind in KINDS:
        for expected in question.get(kind, ()):
            answer = Reading(kind=kind, text=expected)
            if text is None:
                answer.fail("found", why)
            else:
                answer.take("found", has_answer, kind, expected, text)
            answers.append(answer)
    return answers


def has_answer(kind: str, expected: str, text: str) -> bool:
    """The answer to one question; `equals` ignores white space at the end. Raises ValueError."""
    if kind == "equals":
        return expected.rstrip() == text.rstrip()
    if kind == "contains":
        return expected in text
    try:
        return has_match(expected, text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError("this node's Python cannot use the pattern: {}".format(error))


def has_match(pattern: str, text: str) -> bool:
    """Whether a pattern matches. Raises TooLongError for one such as (a+)+b on a long row of a,
    re.error, RecursionError, OverflowError."""
    why = "the pattern took longer than {:g} s: make it simpler".format(PATIENCE)
    return within(PATIENCE, why, re.search, pattern, text, re.MULTILINE) is not None
