"""Commands that need dpkg's lock, by the real dpkg on a database of the test."""

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from far_processes import wait_for

from nodevet.resource.package import apt

FOO = (
    "Package: foo\nStatus: install ok {}\nArchitecture: amd64\nVersion: 1\nMaintainer: x\n"
    "Description: x\n\n"
)


@pytest.fixture
def dpkg(tmp_path: Path) -> Iterator[Path]:
    """A database of dpkg, whose lock another process holds: this one."""
    for name in ("updates", "info", "triggers"):
        (tmp_path / name).mkdir()
    (tmp_path / "status").write_text(FOO.format("unpacked"))
    with (tmp_path / "lock-frontend").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield tmp_path


def started(action: apt.WaitForDpkg, folder: Path) -> "subprocess.Popen[str]":
    """The command that the node's shell gets, on this database, with shorter pauses."""
    words = [*action.words[:-2], f"--admindir={folder}", *action.words[-2:]]
    command = str(apt.WaitForDpkg(words=tuple(words)).command(seconds=60))
    return subprocess.Popen(
        ["sh", "-c", command.replace(f"sleep {apt.PAUSE}", f"echo x >>{folder}/tries; sleep 0.1")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_command_waits_for_dpkgs_lock(dpkg: Path) -> None:
    with started(apt.CONFIGURE, dpkg) as process:
        wait_for(lambda: process.poll() is not None or len(tries(dpkg)) > 1)
        assert process.poll() is None, process.stderr and process.stderr.read()
        (dpkg / "lock-frontend").unlink()  # dpkg makes a new one
        assert process.wait(60) == 0, process.stderr and process.stderr.read()
    assert "ok installed" in (dpkg / "status").read_text()


def test_a_lock_that_is_never_released_fails_the_command_with_dpkgs_message(dpkg: Path) -> None:
    with started(apt.CONFIGURE, dpkg) as process:
        assert process.wait(120) == 2
        assert process.stderr and "locked by another process" in process.stderr.read()
    assert len(tries(dpkg)) == apt.LOCK_SECONDS // apt.PAUSE


def test_other_dpkg_errors_are_not_retried(dpkg: Path) -> None:
    (dpkg / "lock-frontend").unlink()
    (dpkg / "status").write_text("rubbish\n")
    with started(apt.CONFIGURE, dpkg) as process:
        assert process.wait(60) == 2 and not tries(dpkg)
        assert process.stderr and "parsing file" in process.stderr.read()


def test_the_plan_shows_the_command_itself() -> None:
    (action,) = apt.mark("hold", ["a", "b"])
    assert action.command_text == "apt-mark hold a b  # waits for dpkg's lock"
    assert action.label == "apt-mark hold a b"


def tries(folder: Path) -> list[str]:
    file = folder / "tries"
    return file.read_text().splitlines() if file.exists() else []
