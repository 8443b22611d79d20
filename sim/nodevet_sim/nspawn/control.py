"""Starts fleets, asks them, and removes them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodevet_sim.nspawn import cgroups, network, place
from nodevet_sim.nspawn.needs import check
from nodevet_sim.nspawn.place import FleetFolder

START_SECONDS = 300.0  # it describes every node, and may have to compile
DOWN_SECONDS = 60.0


class ControlError(Exception):
    """A fleet does not carry out a request; the message says why and what to do."""


def up(fleet: str, scenario: Path, *, nodes: int, act: Callable[[], None]) -> FleetFolder:
    """Start a fleet and return once its supervisor answers; the nodes are booting then.

    `nodes` is how many it has. The caller holds interrupts; `act` raises KeyboardInterrupt if one
    came.

    Raises ControlError, NeedError, FleetFolderError, KeyboardInterrupt.
    """
    check(nodes)
    where, lock = place.claim(fleet)
    supervisor = None
    try:
        supervisor = _start(where, lock, scenario)
        where.pid.write_text(str(supervisor.pid), encoding="ascii")
        _await_answer(where, supervisor, act)
    except BaseException:  # Ctrl-C, too: a fleet that is half there would go unnoticed
        if supervisor is not None:
            supervisor.kill()
            supervisor.wait()
        os.close(lock)
        _await_end(where)
        clean(where)
        raise
    os.close(lock)
    return where


def _start(where: FleetFolder, lock: int, scenario: Path) -> "subprocess.Popen[bytes]":
    where.scenario.write_bytes(os.fsencode(scenario.resolve()))
    with where.log.open("wb") as log:
        return subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private", "--"),
                *(sys.executable, "-m", "nodevet_sim.nspawn.supervisor", where.fleet, str(lock)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            pass_fds=(lock,),
        )


def _await_answer(
    where: FleetFolder, supervisor: "subprocess.Popen[bytes]", act: Callable[[], None]
) -> None:
    limit = time.monotonic() + START_SECONDS
    while not where.control.exists():
        if supervisor.poll() is not None or time.monotonic() > limit:
            reason = "its supervisor did not answer in time"
            with suppress(FileNotFoundError):  # `down` was faster
                log_text = where.log.read_text(encoding="utf-8", errors="replace").strip()
                reason = log_text or f"its supervisor ended with {supervisor.poll()}"
            raise ControlError(f"the fleet did not start: {reason}")
        time.sleep(0.05)
        act()


def ask(
    where: FleetFolder, request: dict[str, Any], *, seconds: float | None = None
) -> dict[str, Any]:
    """One request to a supervisor, and its answer. Raises ControlError."""
    if not where.folder.exists():
        known = ", ".join(place.fleets()) or "none"
        raise ControlError(f"fleet {where.fleet!r} is not up; fleets: {known}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(where.control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline()
        except OSError as error:
            why = error.strerror or error
            if where.lives() and not where.control.exists():
                why = "it is starting"
            raise ControlError(
                f"fleet {where.fleet} does not answer ({why}); "
                f"if it is yours and stays so, end it with: nodevet sim down {where.fleet}"
            ) from error
    if not line.endswith(b"\n"):
        raise ControlError(f"fleet {where.fleet} ended before it answered; see: nodevet sim list")
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        raise ControlError(reply["error"])
    return reply


def down(where: FleetFolder) -> None:
    """End a fleet, or remove what is left of one, and leave nothing. Raises ControlError."""
    if where.lives():
        try:
            ask(where, {"do": "down"}, seconds=5)
        except ControlError:
            _signal(where, signal.SIGTERM)
        if not _within(DOWN_SECONDS, lambda: not where.lives()):
            _signal(where, signal.SIGKILL)
            _await_end(where)
    clean(where)


def _await_end(where: FleetFolder) -> None:
    """Wait until nobody holds the folder: a killed supervisor's child holds it until it runs its
    own program. Raises ControlError.
    """
    if not _within(DOWN_SECONDS, lambda: not where.lives()):
        raise ControlError(
            f"the supervisor of {where.fleet} does not end; "
            f"run again: nodevet sim down {where.fleet}"
        )


def clean(where: FleetFolder) -> None:
    """Remove what an ended supervisor has left behind. Raises ControlError."""
    try:
        cgroups.end(cgroups.fleet_groups(where.fleet))
    except TimeoutError as error:
        raise ControlError(f"fleet {where.fleet}: {error}") from error
    with suppress(OSError, ValueError):
        number = int(where.number.read_text(encoding="ascii"))
        for name in network.interfaces(where.fleet, number):
            subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
    place.remove(where)


def _signal(where: FleetFolder, number: signal.Signals) -> None:
    with suppress(OSError, ValueError):  # it ended, or `up` has not started it yet
        pid = int(where.pid.read_text(encoding="ascii"))
        if where.lives():
            os.kill(pid, number)


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True
