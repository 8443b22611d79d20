"""Calls Slurm's controller with a short deadline, so that a dead controller blocks nothing."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence

from nodevet.base.age import seconds_of
from nodevet.base.errors import UserError
from nodevet.base.printable import last_line
from nodevet.slurm.nodes import ControllerNode, parse_nodes
from nodevet.slurm.reason import tagged
from nodevet.slurm.reservations import maintenances_of

SECONDS = 8.0  # Slurm's own commands try for a minute and longer
SAME_CLOCK = 2.0  # seconds: Slurm prints whole ones
PRINTED = {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC"}  # how Slurm prints times
FOLDERS = "/usr/bin:/usr/sbin:/usr/local/bin:/opt/slurm/bin"  # slurmd gives its programs no PATH


class SlurmError(UserError):
    """Slurm's controller refused or did not answer; the message says why."""


def read_nodes(names: Sequence[str] = ()) -> dict[str, ControllerNode]:
    """These nodes, or all, by name. Raises SlurmError."""
    return parse_nodes(
        _run("scontrol", "show", "node", "-o", *([",".join(names)] if names else []))
    )


def read_node(name: str) -> ControllerNode:
    """One node. Raises SlurmError."""
    node = read_nodes([name]).get(name)
    if node is None:
        raise SlurmError(f"Slurm has no node {name}")
    return node


def maintenances(name: str) -> list[str]:
    """The maintenance reservations that hold this node now. Raises SlurmError."""
    return maintenances_of(name, _run("scontrol", "show", "reservation", "-o"))


def drain(names: Sequence[str], reason: str, tag: str = "") -> None:
    """Drain these nodes. `tag`: see nodevet.slurm.reason. Raises SlurmError."""
    text = f"Reason={tagged(reason, tag)}"
    _run("scontrol", "update", f"NodeName={','.join(names)}", "State=DRAIN", text)


def resume(names: Sequence[str]) -> None:
    """Resume these nodes. Raises SlurmError."""
    _run("scontrol", "update", f"NodeName={','.join(names)}", "State=RESUME")


def reboots() -> bool:
    """Whether slurm.conf has a RebootProgram. Raises SlurmError."""
    return has_reboot_program(_run("scontrol", "show", "config"))


def clock_ahead() -> float:
    """How many seconds the clock of Slurm's controller is ahead of this machine's; 0 if they agree
    within 2 s. Raises SlurmError."""
    return clock_ahead_of(_run("scontrol", "show", "config"), time.time())


def clock_ahead_of(config: str, now: float) -> float:
    """The same, from `scontrol show config`; 0 if it does not say the time."""
    stamp = re.match(r"Configuration data as of (\S+)", config)
    at = seconds_of(f"{stamp[1]}Z") if stamp else None
    return 0.0 if at is None or abs(at - now) <= SAME_CLOCK else at - now


def has_reboot_program(config: str) -> bool:
    """Whether `scontrol show config` names a program."""
    match = re.search(r"^RebootProgram *= *(.*?) *$", config, re.M)
    return bool(match and match[1] not in ("", "(null)"))


def reboot(name: str) -> None:
    """Let Slurm reboot a drained node, which stays drained. Raises SlurmError."""
    _run("scontrol", "reboot", name)


def _run(program: str, *words: str) -> str:
    path = os.pathsep.join(filter(None, (os.environ.get("PATH"), FOLDERS)))
    executable = shutil.which(program, path=path)
    if executable is None:
        raise SlurmError(f"{program} is not installed on this machine")
    try:
        done = subprocess.run(
            [executable, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **PRINTED},
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{program} did not end within {SECONDS:.0f} s") from None
    except OSError as error:
        raise SlurmError(f"cannot run {executable}: {error.strerror}") from error
    if done.returncode:
        message = last_line(done.stderr or done.stdout) or f"exit status {done.returncode}"
        raise SlurmError(f"{program} {words[0]}: {message}")
    return done.stdout.decode("utf-8", "backslashreplace")
