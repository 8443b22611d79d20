"""What a baseline asks of a text, a file's or a command's: whether it is another one, holds it, or
fits a pattern. The text itself stays on the node."""

import re
import signal

from nodevet.remote.probe.files import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, NoReturn

KINDS = ("equals", "contains", "pattern")
PATIENCE = 1.0  # seconds of CPU time for one pattern


class TooLongError(ValueError):
    """A pattern that tries too much: (a+)+b does not end on a long row of a."""


def merged(asked: "Iterable[dict[str, Any]]", key: str) -> "list[dict[str, Any]]":
    """All questions about one thing as one: its lists together, of flags and numbers the most.

    >>> merged([{"path": "/a", "contains": ["x"]}, {"path": "/a", "contains": ["y"]}], "path")
    [{'path': '/a', 'contains': ['x', 'y']}]
    """
    found: "dict[str, dict[str, Any]]" = {}
    for question in asked:
        whole = found.setdefault(question[key], {})
        for name, value in question.items():
            if isinstance(value, list):
                known = whole.setdefault(name, [])
                known += [item for item in value if item not in known]
            else:
                whole[name] = max(whole.get(name, value), value)
    return [found[name] for name in sorted(found)]


def matches(question: "dict[str, Any]", text: "str | None", why: "Any") -> "list[Reading]":
    """The answers of a text; without one `why` there is none."""
    found = []
    for kind in KINDS:
        for wanted in question.get(kind, ()):
            answer = Reading(kind=kind, text=wanted)
            if text is None:
                answer.fail("found", why)
            else:
                answer.take("found", fits, kind, wanted, text)
            found.append(answer)
    return found


def fits(kind: str, wanted: str, text: str) -> bool:
    """Whether the text does; white space at its end is of no account. Raises ValueError."""
    if kind == "equals":
        return wanted.rstrip() == text.rstrip()
    if kind == "contains":
        return wanted in text
    try:
        return searched(wanted, text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError("this node's Python cannot use the pattern: {}".format(error))


def searched(pattern: str, text: str) -> bool:
    """Whether a pattern is found. Raises TooLongError, re.error, RecursionError, OverflowError.

    The engine looks for signals as it goes on, so that a timer ends a search. It counts the CPU
    time of this process, which a busy machine does not use up.
    """

    def late(number: int, frame: object) -> "NoReturn":
        raise TooLongError(
            "the pattern was not done after {:g} s: make it simpler".format(PATIENCE)
        )

    before = signal.signal(signal.SIGVTALRM, late)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        return re.search(pattern, text, re.MULTILINE) is not None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
