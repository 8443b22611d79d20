"""A mistake on the command line says what is wrong, where, and what to do next; it ends with 2."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from nodevet.cli import nodevet as program
from nodevet.cli.mistakes import MEANT

REPO = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory, and what is no file of nodevet's."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "fleet.yaml").write_text("nodevet: 1\nhosts: gpu[1-2]\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "other.json").write_text('{"a": 1}\n')
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("check -i flet.yaml", "flet.yaml: there is no such file; check the path"),
        (
            "check -i folder",
            "folder: is a folder, which only Ansible reads; name a file, or install",
        ),
        ("check -i binary", "not UTF-8 text; save it as UTF-8"),
        ("check a -b empty", "if the file of this name is meant: ./empty"),
        ("check a -b ./empty", "empty:1:1: the file is empty; begin with the line: nodevet: 1"),
        ("check a -b folder", "folder is a folder: name a file in it"),
        ("check a --deadline 25d", "25d is more than 7d"),
        ("check a --connect-timeout 900d", "900d is more than 7d"),
        ("check --evidence . --max-age 7", "invalid duration '7' without a unit (examples: 90s"),
        ("check a --format html:", "--format html: needs a file after the colon"),
        ("check a --previous empty", "--previous is gone: nodevet records runs"),
        ("report binary", "`nodevet check --format json:FILE` writes one"),
        ("report other.json", "`nodevet check --format json:FILE` writes one"),
        ("apply gone.json -i fleet.yaml", "gone.json: there is no such file; check the path"),
        ("check -i fleet.yaml gpu1 --limit gpu2", "the limit excludes it"),
        ("check --evidnce .", "no such option '--evidnce'; did you mean --evidence?"),
        ("plan --evidence .", "no such option '--evidence'; see: nodevet plan --help"),
        ("check -evidence .", "no such option '-evidence'; did you mean --evidence?"),
        ("check a --baseline=", "a baseline's name is missing here; give a name or a file"),
        ("check a --tags gpu", "'--tags'; --only and --skip of `nodevet check` name checks"),
        ("check a --dry-run", "'--dry-run'; `nodevet check` changes nothing; `nodevet plan` shows"),
        (
            "apply plan.json --dry-run",
            "'--dry-run'; `nodevet check` changes nothing; `nodevet plan`",
        ),
        ("check --hosts gpu1", "'--hosts'; --limit chooses hosts from an inventory; without one, "),
        ("check a --no-second-tri", "'--no-second-tri'; did you mean --no-second-try?"),
        ("check --targts a", "no such option '--targts'; see: nodevet check --help"),
        ("approve a --json", "no such option '--json'; see: nodevet approve --help"),
        ("runs --hosts a", "no such option '--hosts'; see: nodevet runs --help"),
        ("scan", "no such command 'scan'; `nodevet check` vets hosts"),
        ("drain gpu1", "'drain'; `nodevet slurm` drains nodes"),
        ("undo", "no such command 'undo'; `nodevet rollback` reverts a run"),
        (
            "validate a.yaml",
            "'validate'; `nodevet lint` checks baselines, `nodevet check` vets hosts",
        ),
        ("list", "one of these is missing: checks, fixes, baselines, formats"),
        ("completion", "one of these is missing: bash, zsh, fish"),
    ],
)
def test_a_mistake_says_what_to_do(nodevet: Run, files: Path, arguments: str, told: str) -> None:
    done = nodevet(*arguments.split(), cwd=files)
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("Usage")]
    assert told in said[-1]
    assert len(said) <= 2


@pytest.mark.parametrize("advice", sorted(set(MEANT.values())))
def test_advice_names_commands_options_and_pages_that_exist(advice: str) -> None:
    context = click.Context(program)
    names = program.list_commands(context)
    commands = [command for name in names if (command := program.get_command(context, name))]
    options = {option for command in commands for param in command.params for option in param.opts}
    assert set(re.findall(r"`nodevet (\w+)", advice)) <= set(names)
    assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", advice)) <= options
    assert all((REPO / page).exists() for page in re.findall(r"docs/\S+\.md", advice))


def test_lint_refuses_an_empty_name(nodevet: Run, files: Path) -> None:
    """What an unset variable leaves: nothing was linted."""
    done = nodevet("lint", "", cwd=files)
    assert done.returncode == 2
    assert "a baseline's name is missing here; give a name or a file" in done.stdout
