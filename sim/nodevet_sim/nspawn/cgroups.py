"""A control group for each fleet, so that nodevet sim can find and end all its processes.

Each node's systemd manages the group it finds itself in: two nodes in one would fight over it.
Handles version 2, version 1 and both together (hybrid).
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PREFIX = "nodevet-sim-"


def hierarchies(own: str, mounts: str) -> tuple[Path, ...]:
    """The group of this process in the hierarchies that systemd uses. Pure.

    `own` is the text of /proc/self/cgroup, and `mounts` the text of /proc/self/mounts.
    """
    places = {}
    for row in own.splitlines():
        _, controllers, path = row.split(":", 2)
        places[controllers] = path.lstrip("/")
    folders = []
    for row in mounts.splitlines():
        _, folder, kind, options = row.split(" ")[:4]
        if kind == "cgroup2" and "" in places:
            folders.append(Path(folder) / places[""])
        if kind == "cgroup" and "name=systemd" in options.split(",") and "name=systemd" in places:
            folders.append(Path(folder) / places["name=systemd"])
    return tuple(dict.fromkeys(folders))


def own_groups() -> tuple[Path, ...]:
    return hierarchies(
        Path("/proc/self/cgroup").read_text(encoding="utf-8"),
        Path("/proc/self/mounts").read_text(encoding="utf-8"),
    )


def make(places: tuple[Path, ...], name: str) -> tuple[Path, ...]:
    """A group of this name below each place."""
    groups = tuple(place / name for place in places)
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return groups


def fleet_groups(name: str) -> tuple[Path, ...]:
    """The groups of a fleet, wherever in the hierarchies it was started."""
    roots = {Path(row.split(" ")[1]) for row in _cgroup_mounts()}
    names = {  # os.walk, because other groups come and go meanwhile
        Path(folder, PREFIX + name)
        for root in roots
        for folder, inner, _ in os.walk(root)
        if PREFIX + name in inner
    }
    return tuple(sorted(names))


def _cgroup_mounts() -> Iterator[str]:
    for row in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, _, kind, options = row.split(" ")[:4]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            yield row


def pids(group: Path) -> frozenset[int]:
    """Every process in a group and the groups below it."""
    numbers: set[int] = set()
    for folder in (group, *_inner_groups(group)):
        with suppress(OSError):  # the group is gone
            numbers.update(map(int, (folder / "cgroup.procs").read_text(encoding="ascii").split()))
    return frozenset(numbers - {0})


def end(groups: tuple[Path, ...], *, seconds: float = 20.0) -> None:
    """Kill every process in the groups, wait until all are gone, and remove the groups.

    Raises TimeoutError if a process does not end.
    """
    limit = time.monotonic() + seconds
    while alive := frozenset().union(*(pids(group) for group in groups)) - {os.getpid()}:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > limit:
            raise TimeoutError(f"processes do not end: {', '.join(map(str, sorted(alive)))}")
        time.sleep(0.02)
    for group in groups:
        _remove(group, limit)


def _inner_groups(group: Path) -> tuple[Path, ...]:
    """The groups below, deepest first."""
    return tuple(Path(folder) for folder, _, _ in os.walk(group, topdown=False))[:-1]


def _remove(group: Path, limit: float) -> None:
    for folder in (*_inner_groups(group), group):
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:  # EBUSY: a process is still on its way out
                if time.monotonic() > limit:
                    raise
                time.sleep(0.02)
            else:
                break
