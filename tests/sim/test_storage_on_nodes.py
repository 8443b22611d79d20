"""Faults of disks, mounts and memory on nodes that are booted: read as on any machine."""

from typing import Any

import pytest

from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(600)
NODES = """\
sim: 1
title: Disks, mounts, memory and CPUs
templates:
  h100: {gpus: h100-sxm, cores: 2}
nodes:
  healthy: {template: h100}
  broken:
    template: h100
    faults:
      - disk-failing
      - drive-failing
      - drive-dead: {drive: 2}
      - drive-missing: {drive: 3}
      - mount-missing
      - kernel-differs
      - dimm-dead
      - turbo-off
      - smt-off
  read-only: {template: h100, faults: mount-read-only}
  mounts: {template: h100, faults: [inodes-full, mount-left, mount-option-other]}
  another: {template: h100, faults: mount-other}
"""
BASELINE = """\
nodevet: 1
title: these nodes
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}}
expect:
  cpu_frequency: {turbo: true}
  drive_health: {}
  hugepages: none
  memory_size: {minimum_node_gib: 1000}
  mounts: {/dev/shm: {type: tmpfs, options: [exec]}, /mnt/old: absent}
  nfs: {options: [hard]}
  nvme_health: 8
  raid: {}
  smt: true
"""
NOT_THERE = {"nfs", "raid"}
WRONG = {
    "healthy": set(),
    "broken": {
        ("cpu_frequency", ""),
        ("drive_health", "/dev/bus/0 megaraid,4"),
        ("memory_size", "1"),
        ("mounts", "/dev/shm"),
        ("nvme_health", ""),
        ("nvme_health", "0"),
        ("nvme_health", "2"),
        ("smt", ""),
    },
    "mounts": {("disk_space", "/var/tmp"), ("mounts", "/dev/shm"), ("mounts", "/mnt/old")},
    "another": {("mounts", "/dev/shm")},
    "read-only": {("disk_space", "/dev/shm"), ("mounts", "/dev/shm")},
}


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    fleet = boot("storage", NODES)
    fleet.baseline("these", BASELINE)
    options = ("--deadline", "90", "--connect-timeout", "30")
    return fleet.vetted("-i", fleet.place.inventory, *options)


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    return {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert found(hosts[name], "fail") == WRONG[name]
    assert found(hosts[name], "unknown") == set()


def test_the_health_of_a_drive_is_read_from_the_drive(hosts: dict[str, Any]) -> None:
    finding = next(
        each
        for each in hosts["broken"]["findings"]
        if (each["check"], each.get("subject", {}).get("id", "")) == ("nvme_health", "0")
    )
    assert finding["actual"]["media errors"] == "17"
    assert finding["details"]["model"] == "Micron_7450_MTFDKCB3T8TFR"


def test_checks_of_hardware_that_no_node_has_are_not_applicable(hosts: dict[str, Any]) -> None:
    for host in hosts.values():
        assert {check for check, _ in found(host, "not_applicable")} >= NOT_THERE
