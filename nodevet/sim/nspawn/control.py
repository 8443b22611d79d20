"""Starts fleets, asks them, and removes them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodevet.sim.nspawn import cgroups, place
from nodevet.sim.nspawn.needs import check
from nodevet.sim.nspawn.network import MOST_NODES, PREFIX
from nodevet.sim.nspawn.place import Place

START_SECONDS = 60.0
DOWN_SECONDS = 60.0


class ControlError(Exception):
    """A fleet does not do what it was asked; the message says why and what to do."""


def up(fleet: str, scenario: Path) -> Place:
    """Start a fleet and return once its supervisor answers; the nodes are booting then.

    Raises ControlError, NeedError, PlaceError.
    """
    check()
    where = place.claim(fleet)
    where.scenario.write_text(str(scenario.resolve()), encoding="utf-8")
    with where.log.open("wb") as log:
        supervisor = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private", "--"),
                *(sys.executable, "-m", "nodevet.sim.nspawn.supervisor", fleet),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    limit = time.monotonic() + START_SECONDS
    while not where.control.exists():
        if supervisor.poll() is not None or time.monotonic() > limit:
            why = where.log.read_text(encoding="utf-8", errors="replace").strip()
            supervisor.kill()
            supervisor.wait()
            clean(where)
            raise ControlError(f"the fleet does not start: {why or 'no answer in time'}")
        time.sleep(0.05)
    return where


def ask(where: Place, request: dict[str, Any], *, seconds: float | None = None) -> dict[str, Any]:
    """One request to a supervisor, and its answer. Raises ControlError."""
    if not where.folder.exists():
        known = ", ".join(place.fleets()) or "none"
        raise ControlError(f"no fleet {where.fleet!r} is up; there are: {known}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(where.control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline()
        except OSError as error:
            raise ControlError(
                f"fleet {where.fleet} does not answer ({error.strerror or error}); "
                f"remove what is left of it with: nodevet sim down {where.fleet}"
            ) from error
    if not line:
        raise ControlError(f"fleet {where.fleet} ended while it was asked")
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        raise ControlError(reply["error"])
    return reply


def down(where: Place) -> None:
    """End a fleet, or remove what is left of one, and leave nothing. Raises ControlError."""
    if where.lives():
        with suppress(ControlError):
            ask(where, {"do": "down"}, seconds=5)
        if not _within(DOWN_SECONDS, lambda: not where.lives()):
            for pid in _holders(where):
                os.kill(pid, signal.SIGKILL)
            if not _within(DOWN_SECONDS, lambda: not where.lives()):
                raise ControlError(f"the supervisor of {where.fleet} does not end")
    clean(where)


def clean(where: Place) -> None:
    """Remove what a supervisor that is gone has left. Raises ControlError."""
    try:
        cgroups.end(cgroups.left(where.fleet))
    except TimeoutError as error:
        raise ControlError(f"fleet {where.fleet}: {error}") from error
    with suppress(OSError, ValueError):
        number = int(where.number.read_text(encoding="ascii"))
        for index in range(MOST_NODES):
            name = f"{PREFIX}{number}n{index}"
            if Path("/sys/class/net", name).exists():
                subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
    if where.folder.exists():
        shutil.rmtree(where.folder)
    with suppress(OSError):  # other fleets are there
        place.TOP.rmdir()


def _holders(where: Place) -> list[int]:
    """The processes that hold a fleet's lock, from /proc/locks."""
    inode = (where.folder / "lock").stat().st_ino
    rows = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    fields = [row.replace("->", "").split() for row in rows]
    return [int(row[4]) for row in fields if int(row[5].rsplit(":", 1)[1]) == inode]


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True
