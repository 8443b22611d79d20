"""Helpers for the tests of the inventories."""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import fields

from nodevet import inventory
from nodevet.model import Host

MACHINE = "this-machine"

Read = Callable[..., tuple[Host, ...]]


def describe(host: Host) -> str:
    """A host on one line, as docs/inventories.md shows it."""
    name = "@local" if host.local and host.name == MACHINE else host.name
    parts = [name] + (["local"] if host.local and name == host.name else [])
    for setting in ("address", "port", "user", "key_file", "known_hosts", "python"):
        value = getattr(host, setting)
        if value is not None:
            parts.append(f"{setting}={value}")
    parts += [f"root={host.root}"] if host.root != "/" else []
    parts += ["whole_machine"] if host.whole_machine else []
    parts += ["sudo"] if host.sudo else []
    parts += [_bmc(host)] if host.bmc else []
    parts += [",".join(sorted(host.groups))] if host.groups else []
    return " ".join(parts)


def _bmc(host: Host) -> str:
    bmc, parts = host.bmc, []
    for field in fields(bmc):
        if (value := getattr(bmc, field.name)) != field.default:
            parts.append(f"{field.name}:{value}")
    return f"bmc={'/'.join(parts)}"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of this machine, the same wherever the tests run."""
    monkeypatch.setattr("nodevet.inventory.entries.hostname", lambda: MACHINE)
    return MACHINE


@pytest.fixture(autouse=True)
def no_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test lets the Ansible of the person who runs it read inventories; see `ansible`."""
    monkeypatch.setattr("nodevet.inventory.ansible_program.PROGRAM", "no-such-ansible")


@pytest.fixture
def ansible(no_ansible: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ansible reads inventories, as it does where it is installed."""
    program = str(Path(sys.executable).parent / "ansible-inventory")
    monkeypatch.setattr("nodevet.inventory.ansible_program.PROGRAM", program)
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible-home"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hosts() -> Callable[..., list[str]]:
    """`inventory.read`, each host as one line."""

    def read(
        *targets: str, files: Sequence[object] = (), limit: Sequence[str] = (), stdin: bytes = b""
    ) -> list[str]:
        found = inventory.read(
            targets, inventories=[str(file) for file in files], limit=limit, stdin=io.BytesIO(stdin)
        )
        return [describe(host) for host in found]

    return read


@pytest.fixture
def problems(hosts: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The lines of the error that `inventory.read` raises."""

    def read(*targets: str, **options: object) -> list[str]:
        with pytest.raises(inventory.InventoryError) as raised:
            hosts(*targets, **options)
        return str(raised.value).splitlines()

    return read
