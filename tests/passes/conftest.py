"""A node's files, keys, and passes that real ssh-keygen signs."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.base.sshsig import sign
from nodevet.passes.document import NAMESPACE, text_of
from nodevet.passes.on_node.verify import look

UUIDS = ("GPU-1f0c7a5e-0000-4000-8000-000000000001", "GPU-1f0c7a5e-0000-4000-8000-000000000002")
MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"
BOOT = "0a3060cc-75f9-42b3-a33e-163099f1454e"
GPUS = "proc/driver/nvidia/gpus"


class Node:
    """The files of a node, and its pass."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.file = folder / "pass"
        self.allowed = folder / "allowed_signers"
        self.keys = folder
        self.write("etc/machine-id", f"{MACHINE}\n")
        self.write("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
        self.write("proc/uptime", "5000.25 1000.00\n")
        self.write("sys/module/nvidia/version", "550.90.07\n")
        for number, uuid in enumerate(UUIDS):
            self.gpu(number, uuid)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def gpu(self, number: int, uuid: str, excluded: str = "No") -> None:
        """What nvidia.ko prints of a GPU."""
        rows = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nGPU Excluded:\t {excluded}\n"
        self.write(f"{GPUS}/0000:{number:02x}:00.0/information", rows)

    def key(self, name: str, *words: str) -> str:
        """A new key; its public half."""
        file = self.keys / name
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file), *words]
        subprocess.run(made, check=True)
        return " ".join(file.with_suffix(".pub").read_text().split()[:2])

    def allow(self, *lines: str) -> None:
        self.allowed.write_text("".join(f"{line}\n" for line in lines))

    def values(self, **changed: object) -> dict[str, list[str]]:
        """Those of a pass that was signed a minute ago and holds for an hour."""
        now = int(time.time())
        values = {
            "host": "gpu001",
            "machine": MACHINE,
            "boot": BOOT,
            "uptime": "4940",
            "driver": "550.90.07",
            "gpu": list(UUIDS),
            "baseline": f"{'a' * 64} site",
            "evidence": "b" * 64,
            "vetted": str(now - 60),
            "expires": str(now + 3540),
            "nodevet": "0.2.0",
            **changed,
        }
        return {
            key: value if isinstance(value, list) else [str(value)] for key, value in values.items()
        }

    def put(self, text: bytes, key: str = "controller", namespace: str = NAMESPACE) -> None:
        """Sign a text and put it on the node."""
        signature = sign([text], self.keys / key, namespace, option="--pass-key")[0]
        self.file.write_bytes(text + signature)

    def issue(self, **changed: object) -> None:
        self.put(text_of(self.values(**changed)))

    def verify(self) -> tuple[int, str]:
        return look(str(self.file), str(self.allowed), str(self.root))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose pass holds."""
    node = Node(tmp_path)
    node.allow(f'c@example.com namespaces="nodevet-pass@v1" {node.key("controller")}')
    node.issue()
    return node


@pytest.fixture
def refused(node: Node) -> Callable[..., str]:
    """Why the pass does not hold; the code must be 1."""

    def why(code: int = 1) -> str:
        got, text = node.verify()
        assert got == code, text
        assert text.startswith("no valid pass: ") and "\n" not in text
        return text

    return why
