"""What a node is to its cluster, on booted nodes: RDMA, links, routes, NFS, IMEX and CUDA. Each
fault is found by its check, and nothing else is wrong there."""

import json
from importlib.resources import files
from typing import Any

import pytest

from nodevet_sim.machine import BUSES
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
ROCE = {f"mlx5_{at}": f"enp{bus + 1}s0" for at, bus in enumerate(BUSES)}
BASELINE = f"""\
nodevet: 1
title: these nodes
extends: nvidia-h100-sxm
applies: {{gpu: {{device: "10de:2330"}}}}
allow_commands: true
expect:
  framework_cuda: /opt/pytorch/bin/python
  imex: {{nodes: 18}}
  link_ber: {{}}
  nfs: {{options: [hard], maximum_retransmissions_percent: 0.1}}
  rdma: {{count: 8, devices: {json.dumps(ROCE)}}}
  routes: {{default_ipv4: eth0, addresses: {{eth0: [198.18.0.0/16, 198.19.0.0/16]}}}}
"""
EFA = """\
nodevet: 1
title: these nodes
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}, hosts: "efa-good,efa-down,efa-unbound"}
expect:
  efa: 8
"""
WRONG = {  # fault -> the checks and subjects that fail
    "good": set(),
    "address-missing": {("routes", "eth0")},
    "default-route-missing": {("routes", "default IPv4")},
    "imex-down": {("imex", "nvidia-imex.service")},
    "imex-peers-wrong": {("imex", "nodes")},
    "link-bit-errors": {("link_ber", "mlx5_3")},
    "nfs-retransmissions": {("nfs", "/home")},
    "nfs-server-down": {("storage_errors", "filer")},
    "rdma-interface-missing": {("rdma", "mlx5_3")},
    "rdma-names-swapped": {("rdma", "mlx5_0"), ("rdma", "mlx5_1")},
    "torch-cpu": {("framework_cuda", "/opt/pytorch/bin/python")},
    "efa-good": set(),
    "efa-down": {("efa", "rdmap156s0")},
    "efa-unbound": {("efa", ""), ("network_link", "0000:9c:00.0")},
}
ASKED = {"framework_cuda", "imex", "link_ber", "nfs", "rdma", "routes"}


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    shipped = files("nodevet_sim").joinpath("scenarios/cluster.yaml")
    fleet = boot("cluster", shipped.read_text(encoding="utf-8"))
    for name, text in (("these", BASELINE), ("efa", EFA)):
        fleet.baseline(name, text)
    return fleet


def vetted(fleet: SimulatedFleet, *hosts: str) -> dict[str, Any]:
    """What one run says of these hosts, or of all."""
    options = ("--deadline", "150", "--connect-timeout", "30")
    return fleet.vetted("-i", fleet.place.inventory, *options, *hosts)


@pytest.fixture(scope="module")
def hosts(fleet: SimulatedFleet) -> dict[str, Any]:
    return vetted(fleet)


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    return {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


@pytest.mark.parametrize("name", WRONG)
def test_the_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert found(hosts[name], "fail") == WRONG[name]
    assert found(hosts[name], "unknown") == set()


def test_the_cluster_checks_are_ok_on_a_healthy_node(hosts: dict[str, Any]) -> None:
    assert {check for check, _ in found(hosts["good"], "ok")} >= ASKED
    assert not {check for check, _ in found(hosts["good"], "not_applicable")} & ASKED
    assert {check for check, _ in found(hosts["efa-good"], "ok")} >= {"efa"}


RUNNING = ("default-route-missing", "imex-down", "nfs-retransmissions", "rdma-names-swapped")


def test_a_node_is_broken_and_mended_while_it_runs(
    fleet: SimulatedFleet, hosts: dict[str, Any]
) -> None:
    for fault in RUNNING:
        fleet.sim("set", "good", f"fault={fault}")
    broken = vetted(fleet, "good")["good"]
    assert found(broken, "fail") == set().union(*(WRONG[fault] for fault in RUNNING))
    fleet.sim("set", "good", "faults=[]")
    mended = vetted(fleet, "good")["good"]
    assert found(mended, "ok") == found(hosts["good"], "ok")
