"""What the renderers of a sheet do with text and numbers that are hostile."""

import jinja2
import pytest

from nodevet.sheet import chart, markdown, page, terminal, timestrip
from nodevet.sheet.model import (
    Cell,
    ChartBlock,
    ChartLine,
    ChartPoint,
    DifferenceBlock,
    DifferenceRow,
    FactBlock,
    Sheet,
    TableBlock,
    TextBlock,
    TimeBlock,
    TimeLine,
    TimeStrip,
)

LIVE = ("www.evil.example/fix", "0a1b2c3d4e", "- a list", "1. a list", "---", "@octocat", "a|b")
PLAIN = (
    "8 hosts: 2 fail",
    "gpu[001-004,007]",
    "power_limit of GPU 0 is 490 W",
    "≤ 14.4 %",
    "0.5 s",
)


@pytest.mark.parametrize("text", LIVE)
def test_text_that_markdown_would_format_is_in_a_code_span(text: str) -> None:
    blocks = (TextBlock(text=text), FactBlock(rows=((text, "x"),)))
    table = TableBlock(heads=(text, "b"), rows=((Cell(text, right=True), Cell("x")),))
    made = markdown.render(Sheet(title=text, kind="test", facts=(text,), blocks=(*blocks, table)))
    for line in made.splitlines():
        assert not line.startswith((text, f"# {text}")), line
    rows = [line for line in made.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {3}


@pytest.mark.parametrize("text", PLAIN)
def test_markdown_does_not_escape_plain_words(text: str) -> None:
    assert markdown.words(text) == text


@pytest.mark.parametrize("value", [1e308, -1e308, float("inf"), float("nan"), 10.0**31])
def test_a_chart_skips_numbers_that_do_not_fit_on_a_scale(value: float) -> None:
    points = (ChartPoint("a", 1.0, 2.0, 3.0), ChartPoint("b", -value, 0.0, value))
    block = ChartBlock(title="t", lines=(ChartLine(name="all", points=points),))
    drawn = chart.draw(block)
    assert len(drawn.lines[0].dots) == 1
    assert all("nan" not in level.label and "inf" not in level.label for level in drawn.levels)
    assert terminal.bars(block) == [f"all  {terminal.BARS[4]} "]
    line = TimeLine(name="x", unit="%", points=((0.0, 1.0), (1.0, value)), most=value)
    (strip,) = timestrip.strips(
        TimeBlock(strips=(TimeStrip(unit="%", lines=(line,)),), seconds=1.0)
    )
    assert "nan" not in strip.lines[0].points and "nan" not in strip.lines[0].mean


def test_differences_without_a_matrix_need_no_script() -> None:
    row = DifferenceRow(label="FAIL", tone="fail", name="c", text="<b>", hosts=("n1", "n2"))
    blocks = (DifferenceBlock(title="Differences", rows=(row,)),)
    made = page.render(Sheet(title="t", kind="test", blocks=blocks))
    assert "<script" not in made and "script-src" not in made
    assert "<b>2 hosts</b>" in made and "&lt;b&gt;" in made


def test_an_alert_is_seen_in_every_format() -> None:
    blocks = (TextBlock(text="all is well"), TextBlock(text="SUSPICIOUS: look", tone="alert"))
    sheet = Sheet(title="t", kind="test", blocks=blocks)
    made = page.render(sheet)
    assert made.index("SUSPICIOUS: look") < made.index("<main") < made.index("all is well")
    assert "> **SUSPICIOUS: look**" in markdown.render(sheet)
    assert "\x1b[1mSUSPICIOUS: look" in terminal.render(sheet, colour=True)


def test_the_templates_of_a_page_are_compiled_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sheet = Sheet(title="one", kind="test", blocks=(TextBlock(text="a"),))
    made = page.render(sheet)
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert page.render(sheet) == made
