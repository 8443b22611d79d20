"""A program ends with the command that started it, also if Ctrl-C falls into its start."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevet.base.programs import running
from nodevet.inventory.programs import output


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The programs, each of which is interrupted before Popen has returned."""
    found = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            found.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    yield found
    for process in found:
        process.kill()
        process.wait()


def sleeps() -> None:
    with running(["sleep", "600"]):
        raise AssertionError("not interrupted")


def an_inventory() -> None:
    output(["sleep", "600"], "hosts")


@pytest.mark.parametrize("run", [sleeps, an_inventory])
def test_an_interrupt_during_the_start_of_a_program_ends_the_program(
    started: list[subprocess.Popen[bytes]], run: Callable[[], None]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run()
    (process,) = started
    assert process.wait(60) < 0
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_program_leaves_the_signal_handlers_unchanged() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(FileNotFoundError), running(["/no/such/program"]):
        pass
    assert signal.getsignal(signal.SIGINT) is before


SIGNS = """
import sys
from pathlib import Path
from nodevet.base.sshsig import sign
try:
    sign([b"text"], Path(sys.argv[1]), "test", option="--key")
except KeyboardInterrupt:
    sys.exit(3)
"""


@pytest.mark.skipif(not shutil.which("setsid"), reason="needs setsid")
def test_an_interrupted_passphrase_prompt_restores_the_terminal_echo(tmp_path: Path) -> None:
    """ssh-keygen may lose a SIGINT between its prompt and its read; SIGTERM follows."""
    key = tmp_path / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a secret", "-f", str(key)]
    subprocess.run(words, check=True)
    master, slave = pty.openpty()
    words = ["setsid", "--ctty", "--wait", sys.executable, "-c", SIGNS, str(key)]
    without = {name: value for name, value in os.environ.items() if name != "SSH_ASKPASS"}
    with subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=without) as signer:
        said = b""
        while b"Enter passphrase" not in said:
            said += os.read(master, 4096)
        assert not termios.tcgetattr(slave)[3] & termios.ECHO
        signer.send_signal(signal.SIGINT)  # to us alone
        assert signer.wait(60) == 3
    assert termios.tcgetattr(slave)[3] & termios.ECHO
    os.close(slave)
    os.close(master)
