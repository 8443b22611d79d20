"""Counters that rise while nodevet looks, on booted nodes: each is found by its pace within a
sample, and by that alone."""

from typing import Any

import pytest

from nodevet_sim.faults import rising
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
HEAD = """\
sim: 1
title: A node for each of these faults, and one that is healthy
templates:
  h100: {gpus: h100-sxm, cores: 1}
nodes:
  healthy: {template: h100}
"""
BASELINE = """\
nodevet: 1
title: how fast counters may rise
expect:
  infiniband: {count: 8, maximum_per_hour: {symbol_error: 36000}}
  network_link: {drivers: {mlx5_core: {maximum_per_hour: {rx_crc_errors: 36000}}}}
  nvlink: {crc_flit_errors_per_hour: 36000}
  pcie_errors: {corrected_per_hour: 36000}
  pcie_replays: {maximum_per_hour: 36000}
"""
FOUND = {  # fault -> the check and the subject that fail
    "aer-errors-rising": {("pcie_errors", "3")},
    "ib-errors-rising": {("infiniband", "mlx5_3:1")},
    "interface-errors-rising": {("network_link", "ibp26s0")},
    "link-flapping-now": {("network_link", "ibp26s0")},
    "nvlink-errors-rising": {("nvlink", "3")},
    "pcie-replays-rising": {("pcie_replays", "3")},
}


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    nodes = "".join(f"  {name}: {{template: h100, faults: {name}}}\n" for name in FOUND)
    fleet = boot("rising", HEAD + nodes)
    fleet.baseline("base", BASELINE)
    return fleet


@pytest.fixture(scope="module")
def hosts(fleet: SimulatedFleet) -> dict[str, Any]:
    """What comes while nodevet looks at each node."""
    return fleet.vetted(*fleet.reach, "--sample", "10s")


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    return {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() == rising.FAULTS.keys()


def test_a_healthy_node_is_ok(hosts: dict[str, Any]) -> None:
    assert found(hosts["healthy"], "fail") == set()
    assert found(hosts["healthy"], "unknown") == set()


@pytest.mark.parametrize("name", sorted(FOUND))
def test_each_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert hosts[name]["status"] == "vetted"
    assert found(hosts[name], "fail") == FOUND[name]
    assert found(hosts[name], "unknown") == set()


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_finding_says_how_much_the_counter_rose_during_the_sample(
    hosts: dict[str, Any], name: str
) -> None:
    (failed,) = (each for each in hosts[name]["findings"] if each["verdict"] == "fail")
    assert " in 1" in str(failed["actual"]), failed["actual"]  # in 10 s, or a little more


def test_two_looks_read_different_values(fleet: SimulatedFleet) -> None:
    path = "/sys/class/infiniband/mlx5_3/ports/1/counters/symbol_error"
    script = f"a=$(cat {path}); while b=$(cat {path}); [ $b = $a ]; do :; done; echo $a $b"
    before, after = map(int, fleet.run_on("ib-errors-rising", script).split())
    assert 0 < before < after
