"""Pretended nodes over real SSH on loopback: each an sshd, a kernel tree and an NVML state."""

import getpass
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from nodevet.sim.library import build, environment
from nodevet.sim.machine import Machine
from nodevet.sim.sshd import Sshd, make_key
from nodevet.sim.state import state
from nodevet.sim.tree import write


@dataclass(frozen=True)
class Node:
    """A machine, the GPU profile that its NVML answers from, and what differs from it."""

    machine: Machine
    profile: str
    nvml: Mapping[str, object] = field(default_factory=dict)  # overrides of sim.state.state
    listens: bool = True  # False: nothing answers at its address

    @property
    def name(self) -> str:
        return self.machine.hostname

    def state(self) -> str:
        """The NVML state: one GPU for each of the machine's, under the same bus ids."""
        bus_ids = [gpu.address for gpu in self.machine.gpus]
        known = {"driver_version": self.machine.nvidia_version, **self.nvml}
        return state(self.profile, len(bus_ids), bus_ids=bus_ids, **known)


class Fleet:
    """Nodes that can be vetted while the context is open. Everything lies under `folder`."""

    def __init__(self, folder: Path, nodes: Iterable[Node]) -> None:
        self.folder = folder
        self.nodes = tuple(nodes)
        self.inventory = folder / "inventory.yaml"
        self.known_hosts = folder / "known_hosts"
        self._stack = ExitStack()

    def __enter__(self) -> "Fleet":
        with ExitStack() as stack:
            library = build(self.folder / "nvml")
            key = make_key(self.folder / "id_ed25519")
            known, hosts = [], []
            for node in self.nodes:
                home = self.folder / "nodes" / node.name
                root, text = home / "root", home / "nvml.state"
                write(node.machine, root)
                text.write_text(node.state(), encoding="utf-8")
                sshd = Sshd(home, authorized_key=key.public, env=environment(library, text))
                stack.enter_context(sshd)
                known.append(sshd.known_hosts)
                hosts.append(_entry(node.name, sshd, root))
                if not node.listens:
                    sshd.stop()
            self.known_hosts.write_text("".join(known), encoding="utf-8")
            defaults = f"defaults: {{user: {getpass.getuser()}, key_file: {key.path}}}\n"
            lines = ["nodevet: 1\n", defaults, "hosts:\n", *hosts]
            self.inventory.write_text("".join(lines), encoding="utf-8")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _entry(name: str, sshd: Sshd, root: Path) -> str:
    """The node as a line of nodevet's own inventory format."""
    return f"  {name}: {{address: {sshd.address}, port: {sshd.port}, root: {root}}}\n"
