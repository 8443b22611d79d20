"""Completion as a person gets it: real shells at a terminal, and Tab."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SHELLS = ("bash", "zsh", "fish")
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SET_UP = {
    "bash": 'bind "set bell-style none"; eval "$(nodevet completion bash)"',
    "zsh": 'autoload -Uz compinit && compinit -u -D; eval "$(nodevet completion zsh)"',
    "fish": "nodevet completion fish | source",
}
FLEET = """\
nodevet: 1
hosts: {"gpu[001-003]": , login1: }
groups:
  rack1: {hosts: "gpu[001-002]"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with an inventory, a baseline, a check, a plan and a run."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nodevet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodevet "$@"\n')
    program.chmod(0o755)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "our-site.yaml").write_text("nodevet: 1\ntitle: This site\n")
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "own_rule.py").write_text(
        '"""A rule of this site."""\nraise SystemExit\n'
    )
    (tmp_path / "tuesday.json").write_text('{\n "nodevet_plan": 3\n}')
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "runs" / "7f3a91c2-1").mkdir(parents=True)
    (tmp_path / "runs" / "7f3a91c2-1" / "journal.jsonl").write_text("")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host bastion *.example.org !gpu1\n  User ops\n")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "last.html").write_text("")
    return tmp_path


def environment(project: Path) -> dict[str, str]:
    path = f"{project / 'bin'}:{os.environ['PATH']}"
    kept = {"PATH": path, "HOME": str(project), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return {**kept, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


class Terminal:
    """A shell on a pseudo terminal, in a folder."""

    def __init__(self, shell: str, folder: Path) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", *START[shell]],  # fish needs a terminal of its own
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment(folder),
        )
        os.close(theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, pattern: str, seconds: float = 60) -> str:
        """What was shown up to a match. Fails with it if none comes."""
        shown = ""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self._ours], [], [], 0.2)[0]:
                shown += os.read(self._ours, 65536).decode(errors="replace")
                if re.search(pattern, shown):
                    return shown
        raise AssertionError(f"{pattern!r} was not shown in: {shown!r}")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, 9)
        self._shell.wait()
        os.close(self._ours)


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, project: Path) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    opened = Terminal(shell, project)
    try:
        opened.type(f"{SET_UP[shell]}\n")
        opened.type("echo ready$((20+22))\n" if shell != "fish" else "echo ready(math 20+22)\n")
        opened.until("ready42")
        yield opened
    finally:
        opened.close()


LINES = [
    ("nodevet expl", "ain"),
    ("nodevet explain own", "_rule"),
    ("nodevet check -b our", "-site"),
    ("nodevet check -i fleet.yaml --limit @ra", "ck1"),
    ("nodevet check -i fleet.yaml log", "in1"),
    ("nodevet check bast", "ion"),
    ("nodevet check --fail-on crit", "ical"),
    ("nodevet check --format prom", "etheus"),
    ("nodevet check --acce", "pt-new"),
    ("nodevet plan --fix power", "_limit"),
    ("nodevet approve tue", "sday.json"),
    ("nodevet rollback ru", "ns/7f3a91c2-1"),
]


def test_tab_completes_at_a_terminal(terminal: Terminal) -> None:
    for typed, rest in LINES:
        terminal.type(f"{typed}\t")
        # a shell may draw the line again instead of adding to it, and colour parts of it
        shown = terminal.until(rf"{re.escape(rest)}|{re.escape(typed + rest)}")
        assert "Traceback" not in shown and "rror" not in shown, shown
        terminal.type("\x15")  # Ctrl-U: a new line


def offered(project: Path, line: str, shell: str = "bash", **more: str) -> list[str]:
    """What nodevet answers to a shell, with the time that it takes in CPU seconds kept small."""
    done = subprocess.run(
        ["nodevet"],
        cwd=project,
        env={
            **environment(project),
            "_NODEVET_COMPLETE": f"{shell}_complete",
            **more,
            "COMP_LINE": line,
            "COMP_WORDBREAKS": " \t\n\"'@><=;|&(:",
        },
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodevet check -i fleet.yaml --limit gpu", ["gpu001", "gpu002", "gpu003"]),
        (
            "nodevet check -i fleet.yaml --limit '@rack1!gpu00",
            ["@rack1!gpu001", "@rack1!gpu002", "@rack1!gpu003"],
        ),
        ("nodevet check -i fleet.yaml --limit @", ["rack1", "local"]),
        ("nodevet check ", ["@local", "bastion"]),
        ("nodevet check --format=ht", ["html"]),
        ("nodevet check --format html:rep", ["reports/"]),
        ("nodevet check --format html:reports/", ["reports/last.html"]),
        ("nodevet list base", ["baselines"]),
        ("nodevet probe num", ["numa"]),
    ],
)
def test_words_are_those_that_bash_replaces(project: Path, line: str, words: list[str]) -> None:
    found = [answer.partition(",")[2] for answer in offered(project, line)]
    assert sorted(found) == sorted(words)


@pytest.mark.parametrize(
    "line",
    [
        "nodevet check -i none.yaml --limit @",
        "nodevet check -i broken.yaml --limit @",
        "nodevet check -i script.py --limit @",
        "nodevet no-such-command ",
        "nodevet check --no-such-option ",
        "nodevet check --deadline x ",
        "nodevet check 'gpu",
        "",
    ],
)
def test_completion_of_an_invalid_line_prints_no_error_and_runs_no_script(
    project: Path, line: str
) -> None:
    (project / "broken.yaml").write_text("hosts: [")
    (project / "script.py").write_text(
        "import pathlib; pathlib.Path('ran').touch(); hosts = ['x']\n"
    )
    offered(project, line)
    assert not (project / "ran").exists()


@pytest.mark.parametrize("instruction", ["bash_nothing", "tcsh_complete", "x", "bash_source"])
def test_an_unknown_shell_is_answered_with_nothing(project: Path, instruction: str) -> None:
    done = subprocess.run(
        ["nodevet"],
        env={**environment(project), "_NODEVET_COMPLETE": instruction},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_the_script(project: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    asked = subprocess.run(
        ["nodevet", "completion", shell], env=environment(project), capture_output=True, text=True
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    done = subprocess.run([shell, "-n"], input=asked.stdout, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
