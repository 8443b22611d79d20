"""Asks Slurm's controller, with a short deadline: if it is down, nothing waits for it."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from nodevet.base.errors import UserError
from nodevet.base.printable import last_line
from nodevet.slurm.nodes import ControllerNode, parse_nodes
from nodevet.slurm.reason import tagged
from nodevet.slurm.reservations import maintenances_of

SECONDS = 8.0  # Slurm's own commands try for a minute and longer
FOLDERS = "/usr/bin:/usr/sbin:/usr/local/bin:/opt/slurm/bin"  # slurmd gives its programs no PATH


class SlurmError(UserError):
    """Slurm's controller did not do what it was asked; the message says why."""


def read_nodes(names: Sequence[str] = ()) -> dict[str, ControllerNode]:
    """These nodes, or all, by name. Raises SlurmError."""
    return parse_nodes(
        _run("scontrol", "show", "node", "-o", *([",".join(names)] if names else []))
    )


def read_node(name: str) -> ControllerNode:
    """One node. Raises SlurmError."""
    node = read_nodes([name]).get(name)
    if node is None:
        raise SlurmError(f"scontrol shows no node {name}")
    return node


def maintenances(name: str) -> list[str]:
    """The maintenance reservations that hold this node now. Raises SlurmError."""
    return maintenances_of(name, _run("scontrol", "show", "reservation", "-o"))


def drain(names: Sequence[str], reason: str, tag: str = "") -> None:
    """Let these nodes take no further job. `tag`: see nodevet.slurm.reason. Raises SlurmError."""
    text = f"Reason={tagged(reason, tag)}"
    _run("scontrol", "update", f"NodeName={','.join(names)}", "State=DRAIN", text)


def resume(names: Sequence[str]) -> None:
    """Give these nodes back to Slurm. Raises SlurmError."""
    _run("scontrol", "update", f"NodeName={','.join(names)}", "State=RESUME")


def reboots() -> bool:
    """Whether slurm.conf has a RebootProgram. Raises SlurmError."""
    return has_reboot_program(_run("scontrol", "show", "config"))


def has_reboot_program(config: str) -> bool:
    """Whether `scontrol show config` names a program."""
    found = re.search(r"^RebootProgram *= *(.*?) *$", config, re.M)
    return bool(found and found[1] not in ("", "(null)"))


def reboot(name: str) -> None:
    """Let Slurm reboot a drained node, which stays drained. Raises SlurmError."""
    _run("scontrol", "reboot", name)


def _run(program: str, *words: str) -> str:
    path = os.pathsep.join(filter(None, (os.environ.get("PATH"), FOLDERS)))
    found = shutil.which(program, path=path)
    if found is None:
        raise SlurmError(f"{program} is not on this machine")
    try:
        done = subprocess.run(
            [found, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{program} did not end within {SECONDS:.0f} s") from None
    except OSError as error:
        raise SlurmError(f"{found} cannot be run: {error.strerror}") from error
    if done.returncode:
        said = last_line(done.stderr or done.stdout) or f"exit status {done.returncode}"
        raise SlurmError(f"{program} {words[0]}: {said}")
    return done.stdout.decode("utf-8", "backslashreplace")
