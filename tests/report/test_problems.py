"""Problems of files, as people and programs get them."""

import json
from typing import Any

import pytest

from nodevet.author import lint_formats
from nodevet.author.lint_formats import lint_sheet
from nodevet.author.use.lint import Linted, LintProblem
from nodevet.base.printable import cells
from nodevet.base.problems import Place, Problem
from nodevet.sheet import markdown, page, terminal
from nodevet.sheet.excerpts import window


def text(found: list[LintProblem], *, colour: bool = False) -> str:
    return terminal.render(lint_sheet(Linted(files={}, found=tuple(found))), colour=colour)


WRONG = LintProblem(
    problem=Problem(Place(4, 9, "b/site 1.yaml"), "expect.a", "must be b: 50%, or c", "write b"),
    kind="baseline",
    line="  a:    d",
)
ODD = LintProblem(
    problem=Problem(Place(file="fleet.yaml"), "", "a\nb", warning=True), kind="inventory"
)


def test_text_shows_the_line_with_a_caret() -> None:
    assert text([WRONG, ODD]) == (
        "b/site 1.yaml:4:9: expect.a: must be b: 50%, or c; write b\n"
        "    4 |   a:    d\n"
        "      |         ^\n"
        "fleet.yaml: warning: a\nb\n"
    )


def test_markdown_and_html_show_the_line_too() -> None:
    sheet = lint_sheet(Linted(files={"baseline": ("b/site 1.yaml",)}, found=(WRONG, ODD)))
    assert markdown.render(sheet).startswith("# 1 error, 1 warning\n")
    for shown in (markdown.render(sheet), page.render(sheet)):
        assert "    4 |   a:    d\n      |         ^" in shown and "write b" in shown


def test_text_is_coloured_and_nothing_else_changes() -> None:
    shown = text([WRONG], colour=True)
    for code in (31, 1, 2, 0):
        assert f"\x1b[{code}m" in shown
        shown = shown.replace(f"\x1b[{code}m", "")
    assert shown == text([WRONG])


@pytest.mark.parametrize("room", [20, 72, 150])
@pytest.mark.parametrize("column", [1, 2, 19, 20, 21, 60, 399, 400, 401, 999])
@pytest.mark.parametrize("letter", ["x", "\x1b", "漢", "\u202e", "é"])
def test_a_long_line_is_cut_around_the_column(letter: str, column: int, room: int) -> None:
    line = letter * (column - 1) + "!" + letter * (400 - column) if column <= 400 else letter * 400
    shown, before = window(line, column, room)
    assert cells(shown) <= room and shown.isprintable()
    assert cells(shown) >= min(room - 14, 380)  # a character takes up to six columns, at each end
    if column <= 400:
        assert cells(shown[: shown.index("!")]) == before
    else:
        assert cells(shown) == before


def test_a_short_line_is_not_cut() -> None:
    assert window("", 1, 20) == ("", 0)
    assert window("a\tb", 3, 20) == ("a\\tb", 3)


def test_json() -> None:
    told = lint_formats.document([WRONG, ODD], {"baseline": ["b/site 1.yaml"]})
    assert told["files"] == {"baseline": ["b/site 1.yaml"]}
    assert told["problems"][0] == {
        "file": "b/site 1.yaml", "line": 4, "column": 9, "severity": "error", "kind": "baseline",
        "path": "expect.a", "message": "must be b: 50%, or c", "advice": "write b",
    }  # fmt: skip
    assert told["problems"][1]["line"] == 0


def test_github_commands_are_one_line_each_and_escaped() -> None:
    assert lint_formats.github([WRONG, ODD]) == (
        "::error file=b/site 1.yaml,line=4,col=9,title=nodevet%3A expect.a"
        "::must be b: 50%25, or c; write b\n"
        "::warning file=fleet.yaml,title=nodevet%3A inventory::a%0Ab\n"
    )


REQUIRED: dict[str, tuple[str, ...]] = {  # of sarif-schema-2.1.0.json, by definition
    "sarifLog": ("version", "runs"),
    "run": ("tool",),
    "tool": ("driver",),
    "toolComponent": ("name",),
    "reportingDescriptor": ("id",),
    "result": ("message",),
    "multiformatMessageString": ("text",),
}


def test_sarif_has_what_its_schema_requires() -> None:
    log = json.loads(lint_formats.sarif([WRONG, ODD]))

    def of(kind: str, value: dict[str, Any]) -> dict[str, Any]:
        assert set(REQUIRED[kind]) <= value.keys()
        return value

    assert of("sarifLog", log)["version"] == "2.1.0"
    (run,) = (of("run", each) for each in log["runs"])
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = of("toolComponent", of("tool", run["tool"])["driver"])
    rules = [of("reportingDescriptor", rule)["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules))
    for rule in driver["rules"]:
        of("multiformatMessageString", rule["shortDescription"])
    for result in run["results"]:
        of("result", result)
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["ruleId"] in rules
        assert result["message"]["text"]
    first = run["results"][0]["locations"][0]["physicalLocation"]
    assert first["artifactLocation"]["uri"] == "b/site%201.yaml"
    assert first["region"] == {"startLine": 4, "startColumn": 9}
    assert "region" not in run["results"][1]["locations"][0]["physicalLocation"]


def test_without_problems_every_form_is_valid() -> None:
    assert text([]) == lint_formats.github([]) == ""
    assert lint_formats.document([], {}) == {"files": {}, "problems": ()}
    assert json.loads(lint_formats.sarif([]))["runs"][0]["results"] == []
