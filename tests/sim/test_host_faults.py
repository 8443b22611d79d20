"""Faults of kernel and firmware are found by their check and by no other: probed, not booted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.children import gather
from nodevet.remote.probe.sections import stages
from nodevet_sim import tree
from nodevet_sim.faults import host
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
LIMITS = {
    "of": ["login"],
    "minimum_memlock_b": "unlimited",
    "minimum_nofile": 65536,
    "minimum_nproc": 1024,
    "minimum_stack_b": 1 << 20,
}
SAID: dict[str, Any] = {  # check -> its params
    "acs": {"redirect": False},
    "bios": {"one_of": ["2.2.7"], "minimum_date": "2024-01-01"},
    "clocksource": {},
    "cpu_idle_states": {"maximum_us": 10},
    "dns": {"one_of": ["127.0.0.1"], "search": ["cluster.example"]},
    "file_handles": {},
    "iommu": {"one_of": ["disabled", "identity"]},
    "irq_affinity": {},
    "limits": LIMITS,
    "load": {"maximum": 2},
    "memory_errors": {},
    "memory_fragmentation": {"minimum_percent": 20},
    "pcie_settings": {"minimum_read_request_b": 4096, "minimum_payload_b": 256, "aspm": "disabled"},
    "stuck_processes": {"seconds": 1},
}
BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
GPUS = [f"0000:{bus:02x}:00.0" for bus in BUSES]
NICS = [f"0000:{bus + 1:02x}:00.0" for bus in BUSES]
FOUND = {  # fault -> the checks and subjects that fail
    "acs-redirect": {("acs", "0000:5b:01.0")},
    "bios-old": {("bios", "date"), ("bios", "version")},
    "clocksource-hpet": {("clocksource", "")},
    "dimm-uncorrected": {("memory_errors", "mc0")},
    "high-load": {("load", "")},
    "idle-deep": {("cpu_idle_states", "")},
    "iommu-translates": {("iommu", address) for address in (*GPUS, *NICS)},
    "irqs-on-one-cpu": {("irq_affinity", address) for address in (*GPUS[:4], *NICS[:4])},
    "memlock-small": {("limits", "login")},
    "nofile-small": {("limits", "login")},
    "nproc-small": {("limits", "login")},
    "stack-small": {("limits", "login")},
    "memory-fragmented": {("memory_fragmentation", "")},
    "no-nameserver": {("dns", "")},
    "out-of-files": {("file_handles", "open files")},
    "unit-failed": set(),  # a node that has systemd is needed
    "read-request-small": {("pcie_settings", address) for address in NICS},
}
PARAMS = {
    name: msgspec.json.decode(json.dumps(said), type=CATALOG.check(name).params)
    for name, said in SAID.items()
}

Judged = Callable[..., list[tuple[str, Finding]]]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """What these checks say of a node with these faults, or of another machine."""

    def run(faults: list[object], **said: object) -> list[tuple[str, Finding]]:
        known: dict[str, object] = {"gpus": "h100-sxm", "cores": 1, "faults": faults, **said}
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        tree.write_out(machine, node.files, node.links, node.device_nodes, tmp_path / "root")
        for path, content in node.root_files.items():
            place = tmp_path / "root" / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        evidence = probed(str((tmp_path / "root").resolve()))
        checks = {name: CATALOG.check(name) for name in SAID}
        return [
            (name, finding)
            for name, check in checks.items()
            for finding in check.judge(evidence, PARAMS[name])
        ]

    return run


def probed(root: str) -> Evidence:
    """What the sections that these checks read are on the tree."""
    wanted = sorted({"pci"}.union(*(CATALOG.check(name).sections for name in SAID)))
    asks: dict[str, list[str]] = {}
    for name in SAID:
        asked = CATALOG.check(name).asks
        for section, names in (asked(PARAMS[name]) if asked else {}).items():
            asks.setdefault(section, []).extend(names)
    found: dict[str, Any] = {}
    for stage in stages(wanted):
        request = {"asks": asks, "whole_machine": True, "found": found}
        found.update(gather(stage, root, request, 30.0))
    return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": found}))


def wrong(findings: list[tuple[str, Finding]]) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is Verdict.FAIL}


@pytest.mark.parametrize("profile", ["h100-sxm", "a100-sxm-80", "l40s", "rtx-4090", "t4"])
def test_a_healthy_node_is_ok(profile: str, judged: Judged) -> None:
    odd = [
        (name, each)
        for name, each in judged([], gpus=profile)
        if each.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE)
    ]
    assert odd == []


@pytest.mark.parametrize("fault", sorted(host.FAULTS))
def test_a_fault_is_found_and_nothing_else(fault: str, judged: Judged) -> None:
    assert wrong(judged([fault])) == FOUND[fault]


def test_all_host_faults_are_found_when_combined(judged: Judged) -> None:
    assert wrong(judged(sorted(host.FAULTS))) == set().union(*FOUND.values())
