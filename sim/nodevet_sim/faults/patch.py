"""What a fault changes of a healthy node, and how several changes become one. Pure.

Every fault looks at the same healthy node, so their order does not matter; two faults that want
different values for the same file or key contradict each other.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from nodevet_sim.description import Content, GpuLoad, LogLine, SwapArea
from nodevet_sim.modules import How
from nodevet_sim.state import count_of, of_gpu

DEVICES = "sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
DEFAULT_GPU = 3


class FaultError(ValueError):
    """A fault that this node cannot have; the message says why."""


@dataclass(frozen=True)
class Healthy:
    """The node that faults are put into. `state` is NVML's state, by key."""

    files: Mapping[str, Content]
    links: Mapping[str, str]
    state: Mapping[str, str]
    disk_mb: int = 1024
    root_files: Mapping[str, Content] = field(default_factory=dict)  # /etc/...: of its own disk
    device_nodes: tuple[str, ...] = ()  # /dev/nvidia0, ...

    def gpu(self, chosen: int | None) -> int:
        """The GPU with this index; without one GPU 3, or the last. Raises FaultError."""
        count = count_of(self.state)
        if not count:
            raise FaultError("the node has no GPU")
        if chosen is None:
            return min(DEFAULT_GPU, count - 1)
        if chosen >= count:
            raise FaultError(f"there is no GPU {chosen}; the node has {count}, from 0")
        return chosen

    def gpus(self, chosen: int | str) -> tuple[int, ...]:
        """`all`, or the one. Raises FaultError."""
        if isinstance(chosen, int):
            return (self.gpu(chosen),)
        self.gpu(None)
        return tuple(range(count_of(self.state)))

    def text(self, gpu: int, key: str) -> str | None:
        """What NVML answers; None for an error."""
        value = of_gpu(self.state, gpu, key)
        return None if value is None or value.startswith("NVML_ERROR_") else value

    def number(self, gpu: int, key: str) -> int:
        """The same as a number. Raises FaultError if it answers none."""
        value = self.text(gpu, key)
        try:
            return int(value or "", 0)
        except ValueError:
            says = of_gpu(self.state, gpu, key) or "nothing"
            raise FaultError(f"GPU {gpu} has no {key}: its NVML says {says}") from None

    def address(self, gpu: int) -> str:
        """The bus id as sysfs spells it. Raises FaultError."""
        value = self.text(gpu, "bus_id")
        if value is None:
            raise FaultError(f"GPU {gpu} has no bus id")
        return value

    def place(self, gpu: int) -> str:
        """The directory of its PCI function. Raises FaultError."""
        address = self.address(gpu)
        link = self.links.get(f"{DEVICES}/{address}")
        if link is not None:
            return posixpath.normpath(f"{DEVICES}/{link}")
        if f"{DEVICES}/{address}" in self.folders:
            return f"{DEVICES}/{address}"
        raise FaultError(f"GPU {gpu}, {address}, is not on the node's PCI bus")

    @cached_property
    def folders(self) -> frozenset[str]:
        return frozenset(path.rpartition("/")[0] for path in self.files)

    def ends(self, gpu: int) -> tuple[str, ...]:
        """The directories of both ends of its link: the GPU, and the port above it if there is
        one.
        """
        place = self.place(gpu)
        above = place.rpartition("/")[0]
        port = ADDRESS.fullmatch(above.rpartition("/")[2])
        return (place, above) if port else (place,)

    def read(self, path: str) -> str:
        """What a file says, without space around it; empty if the node has none."""
        content = self.files.get(path, "")
        text = content.decode("ascii", "replace") if isinstance(content, bytes) else content
        return text.strip()

    def present(self, changes: Mapping[str, Content]) -> dict[str, Content]:
        """The given files that the node has."""
        return {path: content for path, content in changes.items() if path in self.files}

    def restored(
        self, changes: Mapping[str, Content], cleared_by: str
    ) -> dict[str, tuple[str, Content]]:
        """What ends these changes, and the files as they are; empty if nothing ends them."""
        changed = changes if cleared_by != "nothing" else ()
        return {path: (cleared_by, self.files[path]) for path in changed}


@dataclass(frozen=True)
class Patch:
    """What differs from the healthy node."""

    files: Mapping[str, Content] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    node: Mapping[str, object] = field(default_factory=dict)  # fields of description.SimulatedNode
    links: Mapping[str, str] = field(default_factory=dict)
    restored: Mapping[str, tuple[str, Content]] = field(default_factory=dict)
    """Files that a boot restores: after which one, `reboot` or `power`, and what they say then."""
    root_files: Mapping[str, Content] = field(default_factory=dict)
    services: Mapping[str, bool] = field(default_factory=dict)  # unit -> enabled
    modules: Mapping[str, How] = field(default_factory=dict)
    devices: Mapping[str, str | None] = field(default_factory=dict)
    """Paths of device nodes, and their permissions in octal; None: it is not there."""
    gpu: int | None = None  # the one GPU whose state or files it is about
    gone: frozenset[int] = frozenset()  # GPUs that are no longer there
    unlisted: frozenset[int] = frozenset()  # GPUs on the bus that NVML does not list
    gone_slots: frozenset[str] = frozenset()  # addresses of other PCI functions that are not
    gone_paths: frozenset[str] = frozenset()  # files, links and folders, whole, that are not
    load: tuple[GpuLoad, ...] = ()
    swap: tuple[SwapArea, ...] = ()
    log: tuple[LogLine, ...] = ()
    boot: tuple[str, ...] = ()


def combine(patches: Iterable[tuple[str, Patch]]) -> Patch:
    """All of them as one. Raises FaultError naming the two that contradict each other."""
    named = tuple(patches)
    tables = (
        "files", "links", "state", "node", "restored", "root_files", "services", "modules",
        "devices",
    )  # fmt: skip
    merged = {table: _merged(table, named) for table in tables}
    for name, patch in named:
        for other, its in named:
            if its.gpu in patch.gone | patch.unlisted:
                raise FaultError(f"{name} and {other} conflict on GPU {its.gpu}; keep one")
            if its is not patch:
                for path in its.files:
                    if is_below(path, patch.gone_paths):
                        raise FaultError(f"{name} and {other} conflict on {path}; keep one")
    return Patch(
        **merged,  # type: ignore[arg-type]
        gone=frozenset(gpu for _, patch in named for gpu in patch.gone),
        unlisted=frozenset(gpu for _, patch in named for gpu in patch.unlisted),
        gone_slots=frozenset(slot for _, patch in named for slot in patch.gone_slots),
        gone_paths=frozenset(path for _, patch in named for path in patch.gone_paths),
        load=tuple(load for _, patch in named for load in patch.load),
        swap=tuple(area for _, patch in named for area in patch.swap),
        log=tuple(line for _, patch in named for line in patch.log),
        boot=tuple(dict.fromkeys(command for _, patch in named for command in patch.boot)),
    )


def is_below(path: str, folders: frozenset[str]) -> bool:
    """Whether a path is one of these, or in one.

    >>> is_below("sys/a/b", frozenset(("sys/a",))), is_below("sys/ab", frozenset(("sys/a",)))
    (True, False)
    """
    parts = path.split("/")
    return any("/".join(parts[:end]) in folders for end in range(1, len(parts) + 1))


def _merged(table: str, named: Iterable[tuple[str, Patch]]) -> dict[str, object]:
    values: dict[str, tuple[str, object]] = {}
    for name, patch in named:
        for key, value in getattr(patch, table).items():
            other, known = values.setdefault(key, (name, value))
            if known != value:
                raise FaultError(f"{other} and {name} conflict on {key}; keep one")
    return {key: value for key, (_, value) in values.items()}
