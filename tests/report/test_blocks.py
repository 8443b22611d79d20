"""Blocks of which each renderer makes something else: prose, diffs, rows about hosts, listings."""

import pytest

from nodevet.author.listing_sheet import listing_sheet
from nodevet.sheet import markdown, page, terminal
from nodevet.sheet.model import AnyBlock, CodeBlock, HostRow, HostRowBlock, ProseBlock, Sheet

PROSE = "**Why** it <matters>.\n\n    key: 700\n\n- one: `a`\n  and more\n- two"


def sheet(block: AnyBlock) -> Sheet:
    return Sheet(title="t", kind="test", blocks=(block,))


def test_prose_stays_as_written_in_text_and_becomes_markup_in_a_page() -> None:
    block = ProseBlock(text=PROSE)
    assert PROSE in markdown.render(sheet(block)) and PROSE in terminal.render(sheet(block))
    made = page.render(sheet(block))
    assert "<strong>Why</strong> it &lt;matters&gt;." in made
    assert '<pre class="code">    key: 700</pre>' in made
    assert "<li>one: <code>a</code>\n  and more</li><li>two</li>" in made


def test_prose_is_filled_but_for_lines_to_type() -> None:
    long = ProseBlock(text="word " * 20 + "\n\n    " + "x" * 50)
    lines = terminal.render(sheet(long), width=40).splitlines()
    assert max(map(len, lines[:-1])) <= 40 and lines[-1] == "    " + "x" * 50


def test_a_diff_keeps_blanks_at_the_end_of_its_lines() -> None:
    block = CodeBlock(text="# x\n-a\n+a  ", language="diff")
    assert terminal.render(sheet(block)).endswith("\n-a\n+a  \n")
    coloured = terminal.render(sheet(block), colour=True)
    assert "\x1b[31m-a\x1b[0m" in coloured and "\x1b[32m+a  \x1b[0m" in coloured
    assert '<span class="after">+a  </span>' in page.render(sheet(block))


def test_a_word_stands_out_in_remarks_of_a_diff_and_not_in_its_lines() -> None:
    loud = (("risk reboot", "fail"),)
    block = CodeBlock(text="## risk reboot; x\n+risk reboot", language="diff", loud=loud)
    coloured = terminal.render(sheet(block), colour=True)
    assert coloured.count("\x1b[31mrisk reboot\x1b[0m") == 1
    assert "\x1b[32m+risk reboot\x1b[0m" in coloured


@pytest.mark.parametrize("render", [markdown.render, page.render, terminal.render])
def test_rows_about_hosts_fold_them(render) -> None:  # type: ignore[no-untyped-def]
    row = HostRow(("set x", "1 → 2"), ("gpu1", "gpu2"), "GPU 0", "<b>odd</b>")
    made = render(sheet(HostRowBlock(title="Not planned:", rows=(row,))))
    for word in ("set x", "1 → 2", "gpu[1-2]", "GPU 0"):
        assert word in made
    assert ("`<b>odd</b>`" if render is markdown.render else "odd") in made
    assert render is not page.render or "<b>odd" not in made


def test_a_listing_has_headings_only_in_documents() -> None:
    rows = [{"name": "swap", "title": "none"}]
    made = listing_sheet("checks", rows, {"a": {"swap": "why"}, "b": {}})
    assert terminal.render(made).startswith(
        "swap  none\n\n1 check that only some of them include\n"
    )
    assert "swap  asked by 1  why" in terminal.render(made)
    assert markdown.render(made).startswith("# 1 check\n\n| name | title |\n")
    assert terminal.render(listing_sheet("fixes", [], {})) == ""
