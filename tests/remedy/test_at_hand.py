"""Which host of a plan is changed without SSH, on the machine that nodevet runs on."""

import os
import socket
from pathlib import Path

import pytest

from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.use import confirmed, saved_reach
from nodevet.fixing.model import Risk
from nodevet.model import Host
from nodevet.resource import Resource


def plan(host: str) -> Plan:
    """A plan that says of a host that it is this machine, in this boot."""
    node = PlannedNode(
        machine_id=confirmed.MACHINE_ID.read_text().strip(),
        boot_id=saved_reach.BOOT_ID.read_text().strip(),
        baseline="b",
        hostname=socket.gethostname(),
    )
    step = Step(
        id=f"{host}/x/1", host=host, fix="x", subjects=(), expected=1, actual=0,
        risk=Risk.LIVE, actions=(), resources=(Resource(kind="file", name="/x"),), reason="",
    )  # fmt: skip
    return Plan(
        id="0a1b2c3d", author="alice", created="", expires="",
        baselines={"b": ""}, nodes={host: node}, steps=(step,),
    )  # fmt: skip


def is_local(name: str, address: str = "") -> bool:
    host = Host(name=name, address=address or name)
    (found,) = saved_reach.reached_now(plan(name), [host], {}).hosts
    return found.local


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine_id = tmp_path / "machine-id"
    machine_id.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(confirmed, "MACHINE_ID", machine_id)


def test_this_machine_by_its_host_name_is_local() -> None:
    assert is_local(socket.gethostname())


def test_another_host_name_is_not_local() -> None:
    assert not is_local("gpu001", "10.0.0.1")
