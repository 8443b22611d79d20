"""docs/past.md says what the commands print, over the five nights."""

import os
import subprocess
import sys
from pathlib import Path

import five_nights
from console_blocks import alike, blocks

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
    ran = 0
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
            assert alike(command.shown, done.stdout), done.stdout
            ran += 1
    assert ran == 5
