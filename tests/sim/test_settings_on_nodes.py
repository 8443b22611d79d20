"""Settings that somebody changed, and what an unattended node becomes, on booted nodes: each is
found by its check, and nothing else of what a capture of a healthy node holds, but for what follows
from it."""

import re
from typing import Any

import pytest

from nodevet_sim.faults import settings
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
HEAD = """\
sim: 1
title: A node for each of these faults, one that is healthy, and one that gets them later
templates:
  h100: {gpus: h100-sxm, cores: 2}
nodes:
  healthy: {template: h100}
  later: {template: h100}
"""
BASELINE = """\
nodevet: 1
title: what a capture of the healthy node holds, and what only a person can say
extends: captured
allow_commands: true
expect:
  command: {no_scheduler: {run: [test, "!", -e, /usr/sbin/scontrol]}}
  driver_version: 580.105.08
  failed_units: {}
  file: {no_limits_of_the_site: {path: /etc/security/limits.d/95-site.conf, exists: false}}
  hugepages: none
  kernel_cmdline: {present: [iommu=pt], absent: [nosmt]}
  kernel_modules: {absent: [nouveau]}
  memory_pressure: {minimum_available_percent: 10, maximum_swap_used_percent: 20}
  nic_pairing: {level: PIX}
  numa_binding: true
  nvme_count: 8
  pcie_replays: 10
  rule: {memory_stays: {sysctl: {kernel.numa_balancing: 0}}}
  swap: none
  sysctl: {kernel.numa_balancing: 0}
  transparent_hugepage: {enabled: madvise, defrag: madvise}
  uptime: {maximum_days: 180, minimum_s: 3000}
"""
GPUS = [str(gpu) for gpu in range(8)]
FOUND: dict[str, set[tuple[str, str]]] = {  # fault -> the checks and subjects that fail
    "clocks-lowered": {("gpu_clocks", gpu) for gpu in GPUS},
    "cmdline-other": {("kernel_cmdline", "iommu=pt"), ("kernel_cmdline", "nosmt")},
    "compute-exclusive": {("compute_mode", gpu) for gpu in GPUS},
    "driver-old": {("driver_version", "")},
    "ecc-off": {("ecc_mode", gpu) for gpu in GPUS},
    "gpu-model-other": {("gpu_model", "3")},
    "image-old": {("os_release", "")},
    "hugepages-held": {("hugepages", "")},
    "hugepages-reserved": {("hugepages", "")},
    "memory-full": {("memory_pressure", "")},
    "mig-pending": {("mig_mode", gpu) for gpu in GPUS},
    "numa-balancing-on": {("sysctl", "kernel.numa_balancing"), ("rule", "memory_stays")},
    "process-misplaced": {("numa_binding", "PID")},
    "nouveau-loaded": {("kernel_modules", "nouveau")},
    "rebooted-now": {("uptime", "")},
    "swap-used": {("memory_pressure", ""), ("swap", "")},
    "thp-defrag-always": {("transparent_hugepage", "defrag")},
    "swap-on": {("swap", "")},
    "thp-always": {("transparent_hugepage", "enabled")},
    "up-long": {("uptime", "")},
    # of other modules, which no other test asks these checks about
    "aer-errors": {("pcie_replays", "3")},
    "drive-missing": {("nvme_count", ""), ("nvme_health", "")},
    "gpu-missing": {("gpu_count", ""), ("gpu_topology", "")},
    "memlock-small": {("file", "no_limits_of_the_site")},
    "nic-missing": {("nic_pairing", "0")},
    "slurm-drained": {("command", "no_scheduler")},
    "unit-failed": {("failed_units", "site-scratch.service")},
}
ALSO = {  # what is true there too
    "gpu-missing": {("container_runtime", "/etc/cdi/nvidia.yaml")},
    "gpu-model-other": {("gpus_alike", "3")},
    "nic-missing": {("infiniband", ""), ("network_link", ""), ("rdma", "")},
}
FIXED = {"driver-old", "hugepages-held", "memory-full", "rebooted-now", "swap-used", "up-long"}
"""What cannot come while a node runs, what another fault's files say too (hugepages-reserved), and
swap of which another fault's `swapon -a` came before."""
LATER = sorted(settings.FAULTS.keys() - FIXED)


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    """The findings of each node."""
    nodes = "".join(f"  {name}: {{template: h100, faults: {name}}}\n" for name in FOUND)
    fleet = boot("settings", HEAD + nodes)
    for name in LATER:
        fleet.sim("set", "later", f"fault={name}")
    refused = fleet.nodevet("sim", "set", "--fleet", fleet.name, "later", "fault=up-long")
    assert "fixed when it is created" in refused.stderr
    fleet.capture("healthy", "captured")
    fleet.baseline("base", BASELINE)
    return fleet.vetted(*fleet.reach)


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    """Checks and subjects; PID for the number of a process."""
    return {
        (each["check"], re.sub(r"^[0-9]{2,}$", "PID", each.get("subject", {}).get("id", "")))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


def test_every_fault_is_tried() -> None:
    assert settings.FAULTS.keys() <= FOUND.keys()


def test_a_healthy_node_is_ok(hosts: dict[str, Any]) -> None:
    assert found(hosts["healthy"], "fail") == set()
    assert found(hosts["healthy"], "unknown") == set()


@pytest.mark.parametrize("name", FOUND)
def test_each_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert hosts[name]["status"] == "vetted"
    assert found(hosts[name], "fail") == FOUND[name] | ALSO.get(name, set())
    assert found(hosts[name], "unknown") == set()


def test_faults_come_while_a_node_runs(hosts: dict[str, Any]) -> None:
    expected = set().union(*(FOUND[name] | ALSO.get(name, set()) for name in LATER))
    assert found(hosts["later"], "fail") == expected
    assert found(hosts["later"], "unknown") == set()
