"""Problems of files, as a sheet, and for programs and CI: a document, GitHub, SARIF. Pure."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct, to_builtins

from nodevet import __version__
from nodevet.author.use.lint import Linted, LintProblem
from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.sheet.json import indented
from nodevet.sheet.model import Excerpt, ExcerptBlock, FactBlock, Medium, Sheet
from nodevet.sheet.text import count

SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "baseline": "A baseline says what a kind of node should be.",
    "inventory": "An inventory says which hosts there are, and how to reach them.",
    "approval": "allowed_signers and approval.yaml say who may approve which plan.",
    "check": "A check of the project's own judges the evidence of a node.",
    "fix": "A fix of the project's own plans what makes its check pass.",
}


class LintedProblem(Struct, frozen=True, kw_only=True):
    """One problem."""

    file: str
    line: int  # from 1; 0: the file as a whole
    column: int  # from 1; 0: the line as a whole
    severity: Literal["warning", "error"]
    kind: str  # of the file: baseline, inventory, ...
    path: str  # of the value in the document: expect.power_limit
    message: str
    advice: str


class LintAnswer(Struct, frozen=True, kw_only=True):
    """The checked files, and their problems."""

    files: Mapping[str, Sequence[str]]  # by kind
    problems: tuple[LintedProblem, ...]


def document(
    problems_found: Iterable[LintProblem], files: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The checked files, and every problem with its place; line 0 is the file as a whole."""
    problems = tuple(map(_answer, problems_found))
    answer: dict[str, Any] = to_builtins(LintAnswer(files=files, problems=problems))
    return answer


def _answer(linted: LintProblem) -> LintedProblem:
    problem, place = linted.problem, linted.problem.place
    return LintedProblem(
        file=place.file,
        line=place.line,
        column=place.column,
        severity="warning" if problem.warning else "error",
        kind=linted.kind,
        path=problem.path,
        message=problem.message,
        advice=problem.advice,
    )


def github(problems: Iterable[LintProblem]) -> str:
    """Workflow commands, which annotate the lines of a pull request."""
    return "".join(f"{_command(problem)}\n" for problem in problems)


def _command(linted: LintProblem) -> str:
    problem, place = linted.problem, linted.problem.place
    values = {
        "file": place.file,
        "line": str(place.line) if place.line else "",
        "col": str(place.column) if place.line and place.column else "",
        "title": f"nodevet: {problem.path or linted.kind}",
    }
    properties = ",".join(f"{key}={_property(value)}" for key, value in values.items() if value)
    word = "warning" if problem.warning else "error"
    return f"::{word} {properties}::{_data(_sentence(problem))}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def _sentence(problem: Problem) -> str:
    return f"{problem.message}; {problem.advice}" if problem.advice else problem.message


def sarif(problems: Iterable[LintProblem]) -> str:
    """SARIF 2.1.0, for code scanning."""
    driver = {
        "name": "nodevet",
        "version": __version__,
        "rules": [{"id": kind, "shortDescription": {"text": text}} for kind, text in RULES.items()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem) for problem in problems],
    }
    return indented({"$schema": SARIF, "version": "2.1.0", "runs": [run]})


def _result(linted: LintProblem) -> dict[str, Any]:
    problem, place = linted.problem, linted.problem.place
    text = _sentence(problem)
    result: dict[str, Any] = {
        "ruleId": linted.kind,
        "level": "warning" if problem.warning else "error",
        "message": {"text": f"{problem.path}: {text}" if problem.path else text},
    }
    if place.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(place.file))}}
        if place.line:
            physical["region"] = {"startLine": place.line, "startColumn": max(1, place.column)}
        result["locations"] = [{"physicalLocation": physical}]
    return result


def lint_sheet(linted: Linted) -> Sheet:
    """Every problem with its line, then the checked files."""
    totals = count(linted.errors, "error"), count(linted.warnings, "warning")
    files = tuple((kind, ", ".join(map(brief, names))) for kind, names in linted.files.items())
    return Sheet(
        title=", ".join(totals),
        kind="lint",
        media=Medium.DOCUMENT,
        blocks=(
            ExcerptBlock(rows=tuple(map(_excerpt, linted.found))),
            FactBlock(title="Files", rows=files, media=Medium.DOCUMENT),
        ),
    )


def _excerpt(linted: LintProblem) -> Excerpt:
    problem = linted.problem
    return Excerpt(
        place=str(problem.where),
        mark="warning" if problem.warning else "",
        text=": ".join(filter(None, (problem.path, problem.message))),
        note=problem.advice,
        number=problem.place.line,
        column=problem.place.column,
        line=linted.line,
    )
