"""Real SSH to a fleet of answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from answering_fleet import ADDRESSES, AnsweringFleet

from nodevet_sim.sshd import KeyPair, Sshd, make_key


@pytest.fixture(scope="session")
def answering_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, KeyPair]]:
    key = make_key(tmp_path_factory.mktemp("key") / "id_ed25519")
    folder = tmp_path_factory.mktemp("sshd")
    with Sshd(folder, authorized_key=key.public, addresses=ADDRESSES) as server:
        yield server, key


@pytest.fixture
def fleet(tmp_path: Path, answering_sshd: tuple[Sshd, KeyPair]) -> AnsweringFleet:
    folder = tmp_path / "site"
    folder.mkdir()
    server, key = answering_sshd
    return AnsweringFleet(folder, server, key)
