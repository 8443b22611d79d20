"""Problems of files for programs and CI: a document, GitHub, SARIF. Pure."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nodevet import __version__
from nodevet.author.use.lint import LintProblem
from nodevet.base.problems import Problem
from nodevet.sheet.json import indented

SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    "baseline": "A baseline says what a kind of node should be.",
    "inventory": "An inventory says which hosts there are, and how to reach them.",
    "approval": "allowed_signers and approval.yaml say who may approve which plan.",
    "check": "A check of the project's own judges the evidence of a node.",
    "fix": "A fix of the project's own plans what makes its check pass.",
}


def document(found: Iterable[LintProblem], files: Mapping[str, Sequence[str]]) -> dict[str, Any]:
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
    return {"files": dict(files), "problems": problems}


def github(found: Iterable[LintProblem]) -> str:
    """Workflow commands, which annotate the lines of a pull request."""
    return "".join(f"{_command(each)}\n" for each in found)


def _command(each: LintProblem) -> str:
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


def sarif(found: Iterable[LintProblem]) -> str:
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
    return indented({"$schema": SARIF, "version": "2.1.0", "runs": [run]})


def _result(each: LintProblem) -> dict[str, Any]:
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
