"""Faults of the driver's device nodes, modules and packages, and of a node's processes, clock and
boots: each is found by its check on a node that is booted, and nothing else of what a capture of a
healthy node holds."""

import json
import re
import time
from typing import Any

import pytest

from nodevet_sim.faults import driver, running
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
FAULTS = {**driver.FAULTS, **running.FAULTS}
NODES = """\
sim: 1
title: A node for each of these faults, one that is healthy, and one that gets all of them later
templates:
  h100: {gpus: h100-sxm, cores: 1}
nodes:
  healthy: {template: h100}
  later: {template: h100}
"""
BASELINE = """\
nodevet: 1
title: what a capture of the healthy node holds, and what only a person can say
extends: captured
expect:
  device_nodes: "0666"
  fabric: {}
  gdrcopy: {minimum_version: "2.4"}
  gds: any
  gpudirect: {}
  leftover_processes: {}
  reboots: {maximum: 8}
  stuck_processes: {seconds: 2}
  time_sync: {maximum_error_ms: 100}
"""
FOUND = {  # fault -> the checks and subjects that fail
    "clock-error-large": {("time_sync", "")},
    "clock-unsynchronised": {("time_sync", "")},
    "crashed": {("reboots", "")},
    "device-node-closed": {("device_nodes", "/dev/nvidia-uvm")},
    "device-node-file": {("device_nodes", "5")},
    "gdrdrv-old": {("gdrcopy", "gdrdrv")},
    "rebooted-often": {("reboots", "")},
    "device-node-missing": {("device_nodes", "/dev/nvidia-uvm")},
    "fabric-manager-other": {("fabric", "nvidia-fabricmanager-535")},
    "gdrdrv-missing": {("gdrcopy", "gdrdrv"), ("gdrcopy", "/dev/gdrdrv")},
    "gpudirect-off": {("gpudirect", "")},
    "nvidia-fs-missing": {("gds", "")},
    "process-blocked": {("stuck_processes", "python3")},
    "process-leftover": {("leftover_processes", "3")},
    "zombies": {("stuck_processes", "zombie")},
}
ALSO = {  # where a capture lists the same thing: its modules, and what its CDI specification names
    "device-node-file": {("device_nodes", "5")},
    "gdrdrv-old": {("gdrcopy", "gdrdrv")},
    "rebooted-often": {("reboots", "")},
    "device-node-missing": {("container_runtime", "/etc/cdi/nvidia.yaml")},
    "gdrdrv-missing": {("kernel_modules", "gdrdrv")},
    "gpudirect-off": {("kernel_modules", "nvidia_peermem")},
    "nvidia-fs-missing": {("kernel_modules", "nvidia_fs")},
}
LATER = [
    {"device-node-closed": {"path": "/dev/nvidia3"}},
    *sorted({*FAULTS} - {"device-node-closed", "rebooted-often"}),
]


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    nodes = "".join(f"  {name}: {{template: h100, faults: {name}}}\n" for name in FOUND)
    fleet = boot("driver", NODES + nodes)
    for fault in LATER:
        fleet.sim("set", "later", f"fault={json.dumps(fault)}")
    fleet.capture("healthy", "captured")
    fleet.baseline("base", BASELINE)
    return fleet


@pytest.fixture(scope="module")
def hosts(fleet: SimulatedFleet) -> dict[str, Any]:
    """The findings of each node."""
    return fleet.vetted(*fleet.reach)


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    """Checks and subjects; of a process its name, without its number."""
    return {
        (each["check"], re.sub(r"^[0-9]+ ", "", each.get("subject", {}).get("id", "")))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


def finding(host: dict[str, Any], check: str) -> dict[str, Any]:
    """The one that failed."""
    (only,) = (
        each for each in host["findings"] if (each["check"], each["verdict"]) == (check, "fail")
    )
    return dict(only)


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() == FAULTS.keys()


def test_a_healthy_node_is_ok(hosts: dict[str, Any]) -> None:
    assert found(hosts["healthy"], "fail") == set()
    assert found(hosts["healthy"], "unknown") == set()
    assert {check for subjects in FOUND.values() for check, _ in subjects} <= {
        check for check, _ in found(hosts["healthy"], "ok")
    }


@pytest.mark.parametrize("name", FOUND)
def test_each_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert hosts[name]["status"] == "vetted"
    assert found(hosts[name], "fail") == FOUND[name] | ALSO.get(name, set())
    assert found(hosts[name], "unknown") == set()


def test_faults_come_while_a_node_runs(hosts: dict[str, Any]) -> None:
    every = set().union(*FOUND.values(), *ALSO.values(), {("device_nodes", "3")})
    assert found(hosts["later"], "fail") == every
    assert found(hosts["later"], "unknown") == set()


def test_findings_name_the_process_the_wait_channel_and_the_reboots(hosts: dict[str, Any]) -> None:
    (left,) = finding(hosts["process-leftover"], "leftover_processes")["actual"]
    assert re.fullmatch(r"python3 \(pid [0-9]+, uid 1000, 20000 MiB\)", left)
    blocked = finding(hosts["process-blocked"], "stuck_processes")
    assert blocked["details"]["waits in"] == "kernel_clone"
    assert finding(hosts["crashed"], "reboots")["actual"] == "3 unexpected in 7 days"
    assert finding(hosts["gpudirect-off"], "gpudirect")["actual"] == (
        "nvidia_peermem is not loaded, the kernel module is proprietary"
    )


def test_wtmp_has_the_boots_of_the_node_itself(
    fleet: SimulatedFleet, hosts: dict[str, Any]
) -> None:
    def reboots() -> tuple[str, str]:
        findings = fleet.vetted(*fleet.reach, "--limit", "healthy")["healthy"]["findings"]
        (one,) = (each for each in findings if each["check"] == "reboots")
        return one["verdict"], one["actual"]

    def boot_id() -> str:
        return fleet.run_on("healthy", "cat /proc/sys/kernel/random/boot_id", check=False)

    fleet.sim("reboot", "healthy")
    assert reboots() == ("ok", "0 unexpected of 2 in 7 days")
    before = boot_id()
    fleet.run_on("healthy", "systemctl reboot --force --force", check=False)
    limit = time.monotonic() + 300
    while boot_id() in ("", before):
        assert time.monotonic() < limit
        time.sleep(0.2)
    assert reboots() == ("fail", "1 unexpected in 7 days")
