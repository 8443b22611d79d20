"""The man page holds what the help says, and roff has nothing to say about it; the wheel's copy is
current, as are the scripts of shells beside it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodevet.cli import found, nodevet

REPO = Path(__file__).parents[1]


PAGE = REPO / "share/man/man1/nodevet.1"


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_the_man_page_and_the_shell_completions_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, REPO / "docs/man.py", tmp_path], check=True, cwd=REPO)
    written = files(tmp_path)
    assert len(written) == 4
    assert written == files(REPO / "share"), "run make docs"


def shown(columns: int) -> str:
    """As man shows it, without bold and underlines. Fails on any warning."""
    done = subprocess.run(
        [
            *["groff", "-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-o", "-P-u"],
            f"-rLL={columns}n",
            PAGE,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_man_page_renders_at_any_width_without_warnings(columns: int) -> None:
    lines = shown(columns).splitlines()
    assert lines[0].startswith("NODEVET(1)") and "NAME" in lines
    literal = max(map(len, lines))
    assert literal <= max(columns, 86), [line for line in lines if len(line) == literal]


def commands() -> Iterator[tuple[str, click.Command]]:
    context = nodevet.make_context("nodevet", [], resilient_parsing=True)
    for name in found.modules():
        command = nodevet.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_is_there_with_every_option() -> None:
    text = shown(80)
    for name, command in commands():
        section = re.search(rf"(?ms)^NODEVET {name.upper()}\n(.*?)^[A-Z]", text)
        assert section, f"the man page lacks {name}: run make docs"
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                for word in (*param.opts, *param.secondary_opts):
                    assert word in section[1], (name, word)


def test_the_man_page_keeps_the_line_breaks_of_the_help() -> None:
    text = shown(80)
    assert "\n         1  something fails, at or above --fail-on\n" in text
    assert "\n       nodevet gate gpu017 -b site.yaml --wait 15m " in text


def test_the_man_page_lists_the_environment_variables() -> None:
    told = shown(80).split("\nENVIRONMENT\n")[1]
    assert {"NO_COLOR", "SSH_AUTH_SOCK", "NODEVET_DEBUG"} <= set(re.findall(r"[A-Z_]{6,}", told))
