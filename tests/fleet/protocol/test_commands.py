"""The one-liner, run by every shell that is installed here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet.fleet.protocol.commands import NO_PYTHON, CommandError, command, explain, timed_out

ANSWER = b"import sys;print(sys.flags.isolated)"
SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed"),
    )
    for shell in ("sh", "bash", "dash", "zsh", "csh", "tcsh", "fish", "ksh", "busybox")
]


def framed(program: bytes) -> bytes:
    import zlib

    packed = zlib.compress(program)
    return b"%d\n%s" % (len(packed), packed)


def run(shell: str, line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    argv = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else []), "-c", line]
    return subprocess.run(argv, input=framed(ANSWER), capture_output=True, env=env or None)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_runs_the_probe_command(shell: str) -> None:
    done = run(shell, command(python=sys.executable, sudo=False, seconds=9))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


def test_the_command_contains_no_character_that_a_login_shell_interprets() -> None:
    line = command(python=None, sudo=True, seconds=9)
    inside = line.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert len(line) - len(inside) == len("exec /bin/sh -c ''")
    assert not set(inside) & set("'\\!\n")
    assert len(line) < 1000


def test_python_is_found_in_the_path(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    line = command(python=None, sudo=False, seconds=9)
    assert run("sh", line, PATH=str(tmp_path)).stdout == b"1\n"


def test_python_reads_no_site_packages(tmp_path: Path) -> None:
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\necho $1 $2 $3\n")
    program.chmod(0o755)
    line = command(python=str(program), sudo=False, seconds=9)
    assert run("sh", line).stdout == b"-I -S -c\n"


def test_a_missing_python_has_its_own_exit_code(tmp_path: Path) -> None:
    line = command(python=None, sudo=False, seconds=9).replace("/usr/", "/no/such/")
    assert run("sh", line, PATH=str(tmp_path)).returncode == NO_PYTHON


def test_a_timeout_program_that_is_too_old_is_not_used(tmp_path: Path) -> None:
    old = tmp_path / "timeout"
    old.write_text("#!/bin/sh\necho 'timeout: invalid option -- k' >&2\nexit 125\n")
    old.chmod(0o755)
    line = command(python=sys.executable, sudo=False, seconds=9)
    assert run("sh", line, PATH=f"{tmp_path}:/usr/bin:/bin").stdout == b"1\n"


@pytest.mark.parametrize("python", ["a b", "x;reboot", "$(id)", "x'y", "", "x\ny"])
def test_a_python_that_is_not_a_plain_path_is_refused(python: str) -> None:
    with pytest.raises(CommandError, match="must be a path"):
        command(python=python, sudo=False, seconds=9)


@pytest.mark.parametrize(
    ("code", "stderr", "why"),
    [
        (97, b"", "no python3 on the node"),
        (98, b"Python 3.5 on the node; the probe needs 3.6\n", "Python 3.5 on the node; the.*"),
        (2, b"Unknown option: -I\nusage: ...", "python3 on the node is not Python 3.6 or newer"),
        (1, b"sudo: a password is required\n", r"sudo: a password is required \(a NOPASSWD.*"),
        (127, b"sh: sudo: not found\n", "command on the node exited with 127: sh: sudo: not found"),
        (-1, b"", "connection lost"),
        (
            3,
            b"\xff\x1b[2J\x07<script>\n\n",
            r".* exited with 3: \\xff\\x1b\[2J\\x07<.*",
        ),
    ],
)
def test_each_exit_code_explains_why_there_is_no_evidence(
    code: int, stderr: bytes, why: str
) -> None:
    import re

    assert re.fullmatch(why, explain(code, stderr, python=None))


def test_exit_codes_124_and_137_mean_a_timeout() -> None:
    assert [code for code in range(-1, 256) if timed_out(code)] == [124, 137]
