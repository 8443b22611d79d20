"""A mistake on the command line says what is wrong, where, and what to do next; it ends with 2."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
        ("check -i folder", "folder: is a folder; name a file"),
        ("check -i binary", "not UTF-8 text; save it as UTF-8"),
        ("check a -b empty", "if the file of this name is meant: ./empty"),
        ("check a -b ./empty", "empty:1:1: the file is empty; begin with the line: nodevet: 1"),
        ("check a -b folder", "folder is a folder: name a file in it"),
        ("check a --deadline 25d", "25d is more than 7d"),
        ("check a --connect-timeout 900d", "900d is more than 7d"),
        ("check --evidence . --max-age 7", "invalid duration '7' without a unit (examples: 90s"),
        ("check a --format html:", "--format html: needs a file after the colon"),
        ("check a --previous empty", "--previous is gone: runs are recorded"),
        ("report binary", "`nodevet check --format json:FILE` writes one"),
        ("report other.json", "`nodevet check --format json:FILE` writes one"),
        ("apply gone.json -i fleet.yaml", "gone.json: there is no such file; check the path"),
        ("check -i fleet.yaml gpu1 --limit gpu2", "only gpu1 was chosen, and it is left out"),
        ("check --evidnce .", "no such option '--evidnce'; did you mean --evidence?"),
        ("plan --evidence .", "no such option '--evidence'; see: nodevet plan --help"),
        ("check -evidence .", "no such option '-evidence'; did you mean --evidence?"),
        ("check a --baseline=", "a baseline's name is missing here; give a name or a file"),
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


def test_a_name_that_is_empty_is_not_the_folder(nodevet: Run, files: Path) -> None:
    """What an unset variable leaves: nothing was linted."""
    done = nodevet("lint", "", cwd=files)
    assert done.returncode == 2
    assert "a baseline's name is missing here; give a name or a file" in done.stdout
