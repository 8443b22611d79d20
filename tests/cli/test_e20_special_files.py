"""A named pipe, a socket or a device in the place of a file stops no command; what a shell gives a
command to write to works."""

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.fix.approval.signatures import ApproveError, sign
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import KeyFile
from nodevet.fleet.ssh.keys import _load

EVIDENCE = {"schema": 1, "probe": "", "sections": {"host": {"status": "ok", "data": {}}}}
NODEVET = shlex.join([sys.executable, "-m", "nodevet"])
CHECK = "check --evidence n1.json -b site.yaml --max-age none"


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n1.json").write_text(json.dumps(EVIDENCE))
    (tmp_path / "site.yaml").write_text("nodevet: 1\nexpect:\n  uptime: {}\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, a_socket])
@pytest.mark.parametrize(
    "words",
    [
        "gate @local -b site.yaml --wait 1s --verdict SPECIAL",
        "check 127.0.0.9 -b site.yaml --known-hosts SPECIAL",
        "check 127.0.0.9 -b site.yaml --known-hosts SPECIAL --accept-new",
        "check 127.0.0.9 -b site.yaml --ssh-config SPECIAL",
        "check @local -b site.yaml --save SPECIAL",
        "check @local -b SPECIAL",
        "capture --evidence n1.json -o SPECIAL --force",
        "schema baseline --project SPECIAL",
        "lint SPECIAL",
        f"{CHECK} --format jsonl:SPECIAL",
        f"{CHECK} --format html:SPECIAL",
    ],
)
def test_e20_no_command_waits_for_a_special_file(
    nodevet: Callable[..., Any], words: str, make: Callable[[Path], None]
) -> None:
    make(Path("special"))
    done = nodevet(*words.replace("SPECIAL", "special").split(), cwd=Path.cwd(), seconds=60)
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "special" in told and "Traceback" not in told
    assert any(
        words in told
        for words in ("regular file", "a socket", "no process reads", "not a folder", "must be")
    ), told
    assert not stat.S_ISREG(Path("special").stat().st_mode)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (f"{NODEVET} {CHECK} --format json:/dev/stdout --format table:/dev/null | cat", '"hosts"'),
        (f"{NODEVET} {CHECK} --format json:/dev/null --format jsonl:/dev/fd/1 | cat", '"n1"'),
        (f"{NODEVET} {CHECK} --format json:>(cat) | cat", '"hosts"'),
        (f"{NODEVET} gate @local -b site.yaml --wait 1s --verdict /dev/stdout | cat", '"pending"'),
        (f"{NODEVET} capture --evidence n1.json -o /dev/stdout --force | cat", "nodevet: 1"),
        (f"mkfifo pipe; cat pipe & {NODEVET} {CHECK} --format json:pipe; wait", '"hosts"'),
        (f"{NODEVET} check 127.0.0.9 -b site.yaml --known-hosts /dev/null", "UNREACHABLE"),
        (f"{NODEVET} check 127.0.0.9 -b site.yaml --ssh-config /dev/null", "UNREACHABLE"),
    ],
)
def test_e20_pipes_of_a_shell_work(script: str, shown: str) -> None:
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert shown in done.stdout, done


def test_e20_a_pipe_whose_reader_is_gone_is_an_error_and_not_waited_for() -> None:
    script = f"{NODEVET} {CHECK} --format json:/dev/stdout | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done
    assert done.stderr == "nodevet: /dev/stdout: cannot be written: Broken pipe\n"


@pytest.mark.parametrize("make", [os.mkfifo, a_socket])
def test_e20_a_key_that_is_not_a_regular_file_is_refused(make: Callable[[Path], None]) -> None:
    make(Path("key"))
    with pytest.raises(ApproveError, match="key: not a regular file"):
        sign(b"plan", Path("key"))
    with pytest.raises(SshConfigError, match="key: not a regular file"):
        _load(KeyFile(str(Path("key").absolute()), required=True))
