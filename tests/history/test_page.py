"""docs/history.md shows what the commands print of the five nights; `NODEVET_CONSOLE=write` writes
into it what they print now."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from console_blocks import blocks, is_alike, rewritten_page

from nodevet.cli import display

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
HERE = "tests/history/test_page.py runs it"
PLACE = "/home/ann/.local/state/nodevet/history.sqlite"
Say = Callable[..., str]


def test_the_page_shows_what_is_printed(
    say: Say, remembered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "screen", lambda *_: display.Screen(width=100))
    commands = [
        command
        for block in blocks(PAGE)
        if block.mark("not run") == HERE
        for command in block.commands
    ]
    assert len(commands) >= 10
    page = PAGE.read_text(encoding="utf-8")
    for command in reversed(commands):
        printed = say(*shlex.split(command.text)[1:]).strip("\n")
        printed = printed.replace(remembered.removeprefix("sqlite:///"), PLACE)
        if "prune" not in command.text:
            page = rewritten_page(page, command, printed)
        else:
            assert printed.startswith("would delete the evidence of 0 visits; ")
            assert not command.shown or is_alike(command.shown, printed)  # sizes differ
            page = rewritten_page(page, command, command.shown or printed)
    if os.environ.get("NODEVET_CONSOLE") == "write":
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8")
