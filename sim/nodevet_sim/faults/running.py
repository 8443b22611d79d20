"""Faults of a node while it runs: its processes, its clock, its boots. A node must be booted to
have any of them. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import EarlierBoot, GpuLoad
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import Healthy, Patch

Command = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")]
UNIT = """\
[Unit]
Description={title}

[Service]
ExecStart=/usr/lib/nodevet-sim/nodevet-sim-stuck {words}

[Install]
WantedBy=multi-user.target
"""


class Blocked(FaultParams):
    process: Command = "python3"
    count: Annotated[int, Field(ge=1, le=100)] = 1


def process_blocked(healthy: Healthy, want: Blocked) -> Patch:
    """A process is blocked in the kernel, in state D. It waits for a child of vfork(2).

    `process`, its name: python3; `count`, how many, 1.
    """
    words = f"blocked {want.count} {want.process}"
    return _started("site-blocked.service", "Processes that are blocked", words)


class Zombies(FaultParams):
    process: Command = "python3"
    count: Annotated[int, Field(ge=1, le=1000)] = 60


def zombies(healthy: Healthy, want: Zombies) -> Patch:
    """A process does not wait for its children: they are zombies.

    `process`, its name: python3; `count` of them, 60.
    """
    words = f"zombies {want.count} {want.process}"
    return _started("site-zombies.service", "A parent that does not reap", words)


def _started(unit: str, title: str, words: str) -> Patch:
    text = UNIT.format(title=title, words=words)
    return Patch(root_files={f"/etc/systemd/system/{unit}": text}, services={unit: True})


class Leftover(OneGpu):
    process: Command = "python3"
    uid: Annotated[int, Field(ge=0, le=65534)] = 1000
    mib: Annotated[int, Field(ge=0, le=1 << 20)] = 20_000


def process_leftover(healthy: Healthy, want: Leftover) -> Patch:
    """A process that a job left behind holds a GPU and its memory.

    `gpu`; `process`, its name: python3; `uid`, its user, 1000; `mib`, 20000.
    """
    gpu = healthy.gpu(want.gpu)
    load = GpuLoad((gpu,), want.process, utilization_percent=0, memory_mb=want.mib, uid=want.uid)
    return Patch(load=(load,), gpu=gpu)


class Crashes(FaultParams):
    count: Annotated[int, Field(ge=1, le=50)] = 3


def crashed(healthy: Healthy, want: Crashes) -> Patch:
    """The node's wtmp says that it crashed once a day lately and came back each time.

    `count`, how often, 3.
    """
    boots = (EarlierBoot(float(days), shut_down=False) for days in range(want.count, 0, -1))
    return Patch(node={"earlier_boots": (EarlierBoot(90.0), *boots)})


class Reboots(FaultParams):
    count: Annotated[int, Field(ge=1, le=50)] = 12


def rebooted_often(healthy: Healthy, want: Reboots) -> Patch:
    """The node's wtmp says that it was rebooted often lately, each time after a shutdown.

    `count`, how often, 12. Only a baseline that limits it detects it.
    """
    boots = (EarlierBoot(number / 2) for number in range(want.count, 0, -1))
    return Patch(node={"earlier_boots": (EarlierBoot(90.0), *boots)})


def clock_unsynchronised(healthy: Healthy, want: NoParams) -> Patch:
    """Nothing synchronises the node's clock: the kernel calls it unsynchronised, adjtimex(2)."""
    return Patch(node={"clock_synchronised": False})


class ClockError(FaultParams):
    ms: Annotated[int, Field(ge=1, le=16_000)] = 900


def clock_error_large(healthy: Healthy, want: ClockError) -> Patch:
    """The node's clock is synchronised, but may be far off: it lost contact with its server.

    `ms`, the maximum error of adjtimex(2), 900. Only a baseline that limits it detects it.
    """
    return Patch(node={"clock_error_ms": float(want.ms)})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "clock-error-large": (ClockError, clock_error_large),
    "clock-unsynchronised": (NoParams, clock_unsynchronised),
    "crashed": (Crashes, crashed),
    "process-blocked": (Blocked, process_blocked),
    "process-leftover": (Leftover, process_leftover),
    "rebooted-often": (Reboots, rebooted_often),
    "zombies": (Zombies, zombies),
}
