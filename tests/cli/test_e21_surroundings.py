"""Where nodevet runs: readers that leave, folders that are gone, users without a name or a home."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet.fleet.ssh import ssh_config
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.words import WordError, home

NODEVET = [sys.executable, "-m", "nodevet"]


@pytest.mark.parametrize(
    "words",
    [
        "list checks",
        "explain smt",
        "lint --format json",
        "schema",
        "--help",
        "check --help",
        "version",
    ],
)
def test_e21_a_closed_output_pipe_exits_2_and_not_as_a_failed_check(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*NODEVET, *words.split()], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (2, "")


def test_e21_a_folder_that_was_removed_is_named_as_the_cause(tmp_path: Path) -> None:
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *NODEVET, "lint"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == "nodevet: the current folder was removed: cd to another\n"


def test_e21_a_user_without_a_home_is_told_what_to_set(tmp_path: Path) -> None:
    known = {key: value for key, value in os.environ.items() if key != "XDG_STATE_HOME"}
    done = subprocess.run(
        [*NODEVET, "runs"],
        cwd=tmp_path,
        env={**known, "HOME": "relative"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "nodevet: this user has no home folder: set HOME to an absolute path, "
        "or name a store with --store\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_e21_ssh_needs_a_name_and_a_home_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    with pytest.raises(SshConfigError, match=r"uid \d+, has no name to log in with; name one"):
        ssh_config.ConfigFiles(()).lookup("gpu1", {})
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(WordError, match="~/x: this user has no home folder: set HOME"):
        home("~/x")
    assert ssh_config.load(None) is not None
