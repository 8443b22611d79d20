"""docs/history.md and README.md show what the commands print of the five nights;
`NODEVET_CONSOLE=write` writes into them what they print now."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from console_blocks import blocks, rewritten

from nodevet.cli.common import display

REPO = Path(__file__).parents[2]
HERE = "tests/history/test_page.py runs it"
PLACE = "/home/ann/.local/state/nodevet/history.sqlite"
Say = Callable[..., str]


@pytest.mark.parametrize(("name", "least"), [("docs/history.md", 10), ("README.md", 1)])
def test_the_page_shows_what_is_printed(
    name: str, least: int, say: Say, remembered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = REPO / name
    monkeypatch.setattr(display, "screen", lambda *_: display.Screen(width=100))
    commands = [
        command
        for block in blocks(path)
        if block.mark("not run") == HERE
        for command in block.commands
    ]
    assert len(commands) >= least
    page = path.read_text(encoding="utf-8")
    for command in reversed(commands):
        printed = say(*shlex.split(command.text)[1:]).strip("\n")
        printed = printed.replace(remembered.removeprefix("sqlite:///"), PLACE)
        if "prune" not in command.text:
            page = rewritten(page, command, printed)
        else:
            assert printed.startswith("the evidence of 0 visits would go; there are ")
            page = rewritten(page, command, command.shown or printed)
    if os.environ.get("NODEVET_CONSOLE") == "write":
        path.write_text(page, encoding="utf-8")
    assert page == path.read_text(encoding="utf-8")
