"""Faults of links, fabric, firmware, heat and memory of GPUs are found by their check, where they
were put, and by no other: probed over the simulated NVML, not booted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Finding, Verdict
from nodevet_sim import tree
from nodevet_sim.faults import FaultError, gpu_health
from nodevet_sim.library import environment
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import ScenarioError
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

PROBE = """
import json, sys
from nodevet.remote.probe.main import probe
from nodevet.remote.request import checked_request
print(json.dumps(probe(checked_request({"do": "probe", **json.load(sys.stdin)}))))
"""
CATALOG = Catalog()
BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
SAID: dict[str, Any] = {  # check -> what a baseline says of eight H100
    "bar1": {},
    "cuda_version": {"minimum": "12.4"},
    "fabric": {},
    "gpu_repair": {},
    "gpu_slots": {f"0000:{bus:02x}:00.0": module for module, bus in enumerate(BUSES, 1)},
    "gpus_alike": {},
    "gsp_firmware": {},
    "inforom": {"checksums": True},
    "leftover_processes": {},
    "nvlink": {
        "active": 18,
        "crc_flit_errors": 100,
        "replay_errors": 100,
        "capabilities": ["p2p", "sysmem_access", "p2p_atomics", "sysmem_atomics"],
    },
    "nvswitch": 4,
    "p2p": "nvlink",
    "performance_state": "P0",
    "power_draw": {"minimum": 20, "maximum": 1500},
    "retired_pages": {},
    "thermal": {},
    "throttle_time": {"hw_thermal_s": 60},
    "vbios": {},
}
ALL = [str(gpu) for gpu in range(8)]
FOUND = {  # fault -> the checks and subjects that fail
    "bar1-small": {("bar1", gpu) for gpu in ALL},
    "cuda-old": {("cuda_version", "")},
    "fabric-degraded": {("fabric", "3")},
    "fabric-down": {("fabric", gpu) for gpu in ALL},
    "gpu-hot": {("thermal", "3")},
    "gpu-odd": {("gpus_alike", "3")},
    "gsp-mismatch": {("gsp_firmware", "3")},
    "inforom-corrupted": {("inforom", "3")},
    "memory-leaked": {("leftover_processes", "3")},
    "modules-swapped": {("gpu_slots", "0"), ("gpu_slots", "1")},
    "nvlink-down": {("nvlink", "3")},
    "nvlink-errors": {("nvlink", "3")},
    "nvlink-no-atomics": {("nvlink", "3")},
    "nvlink-slow": {("nvlink", "3")},
    "nvswitch-narrow": {("nvswitch", "0000:83:00.0")},
    "p2p-over-pcie": {("p2p", gpu) for gpu in ALL},
    "p2p-off": {("p2p", gpu) for gpu in ALL},
    "power-sensor": {("power_draw", "3")},
    "pstate-stuck": {("performance_state", "3")},
    "repair-pending": {("gpu_repair", "3")},
    "throttled-earlier": {("throttle_time", "3")},
    "vbios-other": {("vbios", "3")},
}
OF_A_T4 = {
    "pages-retired": {("retired_pages", "3")},
    "pages-retired-single": {("retired_pages", "3")},
}
SECTIONS = ("gpu", "host", "modules", "pci", "processes")

Judged = Callable[..., list[tuple[str, Finding]]]


@pytest.fixture
def judged(nvml: Path, tmp_path: Path) -> Judged:
    """What these checks say of a node with these faults, or of another kind of node."""
    number = count()

    def run(
        faults: list[object], gpus: str = "h100-sxm", said: dict[str, Any] = SAID
    ) -> list[tuple[str, Finding]]:
        place = tmp_path / str(next(number))
        known: dict[str, object] = {"gpus": gpus, "cores": 1, "faults": faults}
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        tree.write_out(machine, node.files, node.links, node.device_nodes, place / "root")
        (place / "nvml.state").write_text(node.state or "")
        evidence = probed(place, nvml)
        found = []
        for name, params in said.items():
            check = CATALOG.check(name)
            judge = check.judge(evidence, params_of(check.params, params))
            found += [(name, finding) for finding in judge]
        return found

    return run


def probed(place: Path, nvml: Path) -> Evidence:
    asks = {"gpu": ["inforom_valid", "nvlink_capabilities"]}
    asked = {
        "asks": asks,
        "root": str((place / "root").resolve()),
        "whole_machine": True,
        "sections": SECTIONS,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps({"deadline": 60, **asked}),
        capture_output=True,
        text=True,
        env={**os.environ, **environment(nvml, place / "nvml.state")},
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return decode(done.stdout)


def wrong(findings: list[tuple[str, Finding]]) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is Verdict.FAIL}


OF_ANY_NODE = {
    "bar1": 256,
    "cuda_version": {"minimum": "11.0"},
    "throttle_time": {"hw_thermal_s": 60},
    "performance_state": ["P0", "P8"],
    "power_draw": {"minimum": 5, "maximum": 1500},
}
GENERAL = {name: OF_ANY_NODE.get(name, {}) for name in SAID if name not in ("gpu_slots", "p2p")}


@pytest.mark.parametrize(
    "profile", ["h100-sxm", "h200-sxm", "a100-sxm-40", "a100-sxm-80", "l40s", "rtx-4090", "t4"]
)
def test_a_healthy_node_is_ok(profile: str, judged: Judged) -> None:
    odd = [
        (name, each)
        for name, each in judged([], profile, GENERAL)
        if each.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE)
    ]
    assert odd == []


def test_a_healthy_hgx_node_is_as_its_baseline_says(judged: Judged) -> None:
    told = judged([])
    assert {each.verdict for _, each in told} <= {Verdict.OK, Verdict.NOT_APPLICABLE}
    judged_at_all = {name for name, each in told if each.verdict is Verdict.OK}
    assert judged_at_all == SAID.keys() - {"retired_pages"}


@pytest.mark.parametrize("fault", sorted(FOUND))
def test_a_fault_is_found_and_nothing_else(fault: str, judged: Judged) -> None:
    told = judged([fault])
    assert wrong(told) == FOUND[fault]
    assert Verdict.UNKNOWN not in {each.verdict for _, each in told}


def test_pages_that_a_t4_retired(judged: Judged) -> None:
    assert wrong(judged(["pages-retired"], "t4", GENERAL)) == OF_A_T4["pages-retired"]


def test_a_hot_a100_fails_by_its_absolute_temperature(judged: Judged) -> None:
    assert wrong(judged(["gpu-hot"], "a100-sxm-80", GENERAL)) == FOUND["gpu-hot"]


def test_every_fault_is_tried() -> None:
    assert gpu_health.FAULTS.keys() == FOUND.keys() | OF_A_T4.keys()


@pytest.mark.parametrize("fault", ["pages-retired", "nvlink-down", "fabric-down", "p2p-off"])
def test_a_fault_that_the_gpu_cannot_have_is_refused(fault: str, judged: Judged) -> None:
    profile = {"pages-retired": "h100-sxm"}.get(fault, "t4")
    with pytest.raises((FaultError, ScenarioError)):
        judged([fault], profile)
