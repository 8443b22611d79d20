"""Hosts that launchers and Dask workers visit: one sshd with an address for each."""

from collections.abc import Callable, Iterator

import preloaded_workers
import pytest

from nodevet.fleet.controller import launched
from nodevet.model import Host
from nodevet_sim.sshd import Sshd

HOSTS = 12


@pytest.fixture(scope="module")
def node(sshd: Callable[..., Sshd]) -> Sshd:
    return sshd(addresses=[f"127.7.0.{n}" for n in range(1, HOSTS + 1)])


@pytest.fixture
def own_worker() -> Iterator[None]:
    """A worker is the child itself, for tests that send it signals."""
    with preloaded_workers.off():
        yield


@pytest.fixture
def hosts(node: Sshd, fake: dict[str, str]) -> Callable[..., list[Host]]:
    """Makes hosts of a group whose python3 does what `act` says. Their paths are of this machine,
    which no launcher knows."""

    def make(act: str, count: int = HOSTS, group: str = "dc1") -> list[Host]:
        return [
            Host(
                name=f"{group}-{n:02}",
                address=node.addresses[n % len(node.addresses)],
                port=node.port,
                user="root",
                python=fake[act],
                key_file="/no/such/key/on/the/bastion",
                known_hosts="/no/such/file/on/the/bastion",
                groups=frozenset({group}),
            )
            for n in range(count)
        ]

    return make


@pytest.fixture
def small_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that several launchers have some of a few hosts."""
    monkeypatch.setattr(launched, "LEAST", 2)
