"""Problems of files for people, programs and CI: text with the line, JSON, GitHub, SARIF. Pure."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from nodevet import __version__
from nodevet.base.printable import ELLIPSIS, cells, plain
from nodevet.base.problems import Problem
from nodevet.sheet.json import encode

WIDEST = 160  # columns of a line that is shown, if none are said
GUTTER = 8  # columns of the number and the bar before it
RED, YELLOW, BOLD, DIM, RESET = (f"\x1b[{code}m" for code in (31, 33, 1, 2, 0))
SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "baseline": "A baseline says what a kind of node should be.",
    "inventory": "An inventory says which hosts there are, and how to reach them.",
    "approval": "allowed_signers and approval.yaml say who may approve which plan.",
    "check": "A check of the project's own judges the evidence of a node.",
    "fix": "A fix of the project's own plans what makes its check pass.",
}


class LocatedProblem(Protocol):
    """A problem, the kind of file that it is in, and the line that it stands in."""

    @property
    def problem(self) -> Problem: ...
    @property
    def kind(self) -> str: ...
    @property
    def line(self) -> str | None: ...


def text(found: Iterable[LocatedProblem], *, colour: bool = False, width: int | None = None) -> str:
    """Each problem as its line, and below it the line of the file with a caret."""
    return "".join(
        f"{_headline(each.problem, colour)}\n{_excerpt(each, colour, width or WIDEST)}"
        for each in found
    )


def _headline(problem: Problem, colour: bool) -> str:
    if not colour:
        return str(problem)
    word = f"{YELLOW}warning{RESET}" if problem.warning else ""
    parts = [f"{BOLD}{problem.where}{RESET}", word, problem.path, problem.message]
    told = ": ".join(part for part in parts if part)
    return f"{told}{DIM}; {problem.advice}{RESET}" if problem.advice else told


def _excerpt(each: LocatedProblem, colour: bool, width: int) -> str:
    """The line, cut around the column if it is long, and the caret below; both end in a newline."""
    place = each.problem.place
    if each.line is None or not place.line:
        return ""
    shown, column = window(each.line, place.column, max(20, width - GUTTER))
    tint = YELLOW if each.problem.warning else RED
    on, dim, off = (tint, DIM, RESET) if colour else ("", "", "")
    return f"{dim}{place.line:>5} | {off}{shown}\n{dim}      | {off}{' ' * column}{on}^{off}\n"


def window(line: str, column: int, room: int) -> tuple[str, int]:
    """At most `room` columns of a line, printable, with its character number `column` (from 1) in
    view; and how many columns stand before that character.

    >>> window("a: b", 4, 20)
    ('a: b', 3)
    """
    at = max(0, min(column - 1, len(line)))
    first = max(0, at - room)  # none of the characters before it can be in view
    pieces = [plain(character) for character in line[first : at + room]]
    start = end = at - first
    left, grown = room - 2, True  # but for a mark at each end
    while grown:
        grown = False
        if end < len(pieces) and cells(pieces[end]) <= left:
            left, end, grown = left - cells(pieces[end]), end + 1, True
        if start and cells(pieces[start - 1]) <= left:
            left, start, grown = left - cells(pieces[start - 1]), start - 1, True
    head = (ELLIPSIS if first + start else "") + "".join(pieces[start : at - first])
    tail = "".join(pieces[at - first : end]) + (ELLIPSIS if first + end < len(line) else "")
    return head + tail, cells(head)


def json(found: Iterable[LocatedProblem], files: Mapping[str, Sequence[str]]) -> str:
    """What was looked at, and every problem with its place; line 0 is the file as a whole."""
    problems = [
        {
            "file": each.problem.place.file,
            "line": each.problem.place.line,
            "column": each.problem.place.column,
            "severity": "warning" if each.problem.warning else "error",
            "kind": each.kind,
            "path": each.problem.path,
            "message": each.problem.message,
            "advice": each.problem.advice,
        }
        for each in found
    ]
    return _indented({"files": dict(files), "problems": problems})


def github(found: Iterable[LocatedProblem]) -> str:
    """Workflow commands, which annotate the lines of a pull request."""
    return "".join(f"{_command(each)}\n" for each in found)


def _command(each: LocatedProblem) -> str:
    problem, place = each.problem, each.problem.place
    known = {
        "file": place.file,
        "line": str(place.line) if place.line else "",
        "col": str(place.column) if place.line and place.column else "",
        "title": f"nodevet: {problem.path or each.kind}",
    }
    said = ",".join(f"{key}={_property(value)}" for key, value in known.items() if value)
    word = "warning" if problem.warning else "error"
    return f"::{word} {said}::{_data(_sentence(problem))}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def _sentence(problem: Problem) -> str:
    return f"{problem.message}; {problem.advice}" if problem.advice else problem.message


def sarif(found: Iterable[LocatedProblem]) -> str:
    """SARIF 2.1.0, for code scanning."""
    driver = {
        "name": "nodevet",
        "version": __version__,
        "rules": [{"id": kind, "shortDescription": {"text": said}} for kind, said in RULES.items()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each) for each in found],
    }
    return _indented({"$schema": SARIF, "version": "2.1.0", "runs": [run]})


def _result(each: LocatedProblem) -> dict[str, Any]:
    problem, place = each.problem, each.problem.place
    told = _sentence(problem)
    result: dict[str, Any] = {
        "ruleId": each.kind,
        "level": "warning" if problem.warning else "error",
        "message": {"text": f"{problem.path}: {told}" if problem.path else told},
    }
    if place.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(place.file))}}
        if place.line:
            physical["region"] = {"startLine": place.line, "startColumn": max(1, place.column)}
        result["locations"] = [{"physicalLocation": physical}]
    return result


def _indented(value: Any) -> str:
    return msgspec.json.format(encode(value), indent=2) + "\n"
