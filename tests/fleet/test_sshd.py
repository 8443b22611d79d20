"""The loopback server itself: it starts, it is reached with its own files, it ends whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fleet import Options, visit
from nodevet.inventory import read
from nodevet.model import Status
from nodevet_sim.sshd import KeyPair, Sshd, SshdError, write_inventory, write_known_hosts


def test_nodes_are_reached_with_the_inventory_and_known_hosts_written_for_them(
    tmp_path: Path, sshd: Callable[..., Sshd], key: KeyPair
) -> None:
    nodes = {"gpu1": sshd(), "gpu2": sshd(env={"NODEVET_SIM_STATE": "/x y"})}
    write_inventory(tmp_path / "fleet.yaml", nodes, key)
    write_known_hosts(tmp_path / "known_hosts", nodes.values())
    hosts = read([], inventories=[str(tmp_path / "fleet.yaml")])
    options = Options(known_hosts=tmp_path / "known_hosts", ssh_config=Path("/dev/null"))
    visits = {one.host: (one.status, one.why) for one in visit(hosts, options)}
    assert visits == {"gpu1": (Status.VETTED, ""), "gpu2": (Status.VETTED, "")}


def test_the_loopback_sshd_ends_with_its_context(tmp_path: Path, key: KeyPair) -> None:
    with Sshd(tmp_path / "node", authorized_key=key.public) as node:
        pid = node.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(SshdError, match="is not running"):
        _ = node.pid


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"addresses": ["0.0.0.0"]}, "0.0.0.0 is not a loopback address"),
        ({"addresses": [f"127.0.0.{n}" for n in range(1, 18)]}, "17 addresses; one sshd takes 16"),
    ],
)
def test_addresses_outside_loopback_and_too_many_addresses_are_refused(
    tmp_path: Path, options: dict[str, list[str]], why: str
) -> None:
    with pytest.raises(SshdError, match=why):
        Sshd(tmp_path, authorized_key="", **options)


def test_a_wrong_configuration_is_reported(tmp_path: Path, key: KeyPair) -> None:
    node = Sshd(tmp_path / "node", authorized_key=key.public, extra=["NoSuchOption yes"])
    with (
        pytest.raises(SshdError, match=r"did not start on 127\.0\.0\.1: .*NoSuchOption"),
        node,
    ):
        pass
