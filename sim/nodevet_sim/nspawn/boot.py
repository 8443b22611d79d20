"""Boots one node: the command, the message that it is up, and other commands."""

import asyncio
import re
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodevet_sim.nspawn.disk import SHARED

REBOOT = 133  # systemd-nspawn --keep-unit ends so when the node reboots
NVIDIA_MAJOR, UVM_MAJOR = 195, 510
NAMED = {
    "/dev/gdrdrv": (511, 0),
    "/dev/nvidiactl": (NVIDIA_MAJOR, 255),
    "/dev/nvidia-modeset": (NVIDIA_MAJOR, 254),
}


class NodeError(Exception):
    """A node does not do what it should; the message says what happened."""


def command(name: str, folder: Path, *, boottime: int, monotonic: int) -> list[str]:
    """Boots the node in `folder`, with its own clocks (time_namespaces(7)).

    `boottime` and `monotonic` are the times of this machine's clocks when the node's clocks are 0.
    """
    return [
        *("unshare", "--time", f"--boottime={-boottime}", f"--monotonic={-monotonic}", "--"),
        *("systemd-nspawn", "--quiet", "--boot", f"--directory={folder / 'root'}"),
        *(f"--machine={machine(name)}", f"--hostname={name}", "--settings=no"),
        *("--register=no", "--keep-unit", "--console=pipe", "--link-journal=no"),
        *("--resolv-conf=off", "--timezone=off", "--notify-ready=yes"),
        f"--network-namespace-path=/run/netns/{name}",
        "--capability=CAP_NET_ADMIN",  # of that namespace
        f"--bind={folder / 'shared'}:{SHARED}",
    ]


def machine(name: str) -> str:
    """A name that systemd-nspawn accepts for a machine: letters, digits, dots and dashes.

    >>> machine("gpu_001")
    'gpu-001'
    """
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)[:64].strip(".-") or "node"


def numbers(path: str, index: int) -> tuple[int, int]:
    """Major and minor of a device node of the NVIDIA driver; `index` is for nodes without one."""
    match = re.fullmatch(r"/dev/nvidia([0-9]+)", path)
    return (NVIDIA_MAJOR, int(match[1])) if match else NAMED.get(path, (UVM_MAJOR, index))


@contextmanager
def notifications(path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd-nspawn reports the progress of the boot; see sd_notify(3)."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as listening:
        listening.bind(str(path))
        listening.setblocking(False)
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


def last_words(output: bytes) -> str:
    """The end of what a node or a command wrote, made safe to print.

    >>> last_words(b"one\\n\\x1b[31mtwo\\x1b[0m\\a\\n")
    'one / two'
    """
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output[-2000:].decode("ascii", "replace"))
    rows = ["".join(filter(str.isprintable, row)).strip() for row in text.splitlines()]
    return " / ".join([row for row in rows if row][-3:])


def replace(path: Path, text: str) -> None:
    """Write a file atomically, so that a reader never sees half of it."""
    new = path.with_name(f"{path.name}.sim")
    new.write_text(text, encoding="utf-8")
    new.rename(path)


async def run(*words: object) -> str:
    """A command's output. Raises NodeError with what it complained."""
    process = await asyncio.create_subprocess_exec(
        *map(str, words), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate()
    if process.returncode != 0:
        raise NodeError(f"{words[0]} exited with {process.returncode}: {last_words(complaint)}")
    return output.decode("utf-8", "replace")
