"""docs/past.md says what the commands print, over the five nights; `NODEVET_CONSOLE=write` writes
into it what they print now."""

import os
import re
import subprocess
import sys
from pathlib import Path

import five_nights
from console_blocks import Command, blocks, is_alike, rewritten_page

PAGE = Path(__file__).parents[2] / "docs" / "past.md"


def test_every_command_of_the_page_does_what_it_shows(url: str, tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    for file in five_nights.READ.glob("*.yaml"):
        (tmp_path / "baselines" / file.name).write_text(file.read_text())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nodevet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodevet "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    ran: list[tuple[Command, str]] = []
    for block in blocks(PAGE):
        if name := block.mark("file"):
            (tmp_path / name).write_text(block.text)
        if block.kind != "console":
            continue
        for command, code in zip(block.commands, block.exits, strict=True):
            done = subprocess.run(
                ["sh", "-c", command.text],
                cwd=tmp_path,
                env={**os.environ, "PATH": path, "NODEVET_STORE": url, "TZ": "UTC"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert done.returncode == code, done.stdout
            ran.append((command, done.stdout.strip("\n")))
    assert len(ran) == 5
    if os.environ.get("NODEVET_CONSOLE") == "write":
        page = PAGE.read_text(encoding="utf-8")
        for command, printed in reversed(ran):
            same = is_alike(this_year(command.shown), this_year(printed))
            page = page if same else rewritten_page(page, command, printed)
        PAGE.write_text(page, encoding="utf-8")
        return
    for command, printed in ran:
        assert is_alike(this_year(command.shown), this_year(printed)), printed


def this_year(text: str) -> str:
    """A text as nodevet prints it in the year of the nights; it writes the dates of another one
    out."""
    return re.sub(r"\b2026-11-0?(\d+)", r"Nov \1", text)
