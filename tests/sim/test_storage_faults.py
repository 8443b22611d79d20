"""Faults of disks, memory and CPUs are found by their check and by no other: probed, not booted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.children import gather
from nodevet_sim import storage_files, tree
from nodevet_sim.faults import cpu_memory, storage
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
NFS = {
    "options": ["hard", "vers=4.2"],
    "without": ["ro"],
    "minimum_nconnect": 8,
    "minimum_rsize": 1048576,
    "minimum_wsize": 1048576,
    "maximum_retransmissions_percent": 0.1,
    "maximum_queue_ms": 20,
    "maximum_rtt_ms": 50,
}
SAID: dict[str, dict[str, Any]] = {  # check -> its params, of a node with eight H100
    "cpu_frequency": {"turbo": True, "epp": "performance"},
    "cpu_topology": {"sockets": 2, "cores": 4, "threads": 8, "model": "Intel(R) Xeon(R)*"},
    "hugepages": {"total": "none"},
    "kernel": {"one_of": ["5.15.0-105-generic"]},
    "kernel_cmdline": {"present": ["iommu=pt"], "absent": ["nosmt"]},
    "memory_pressure": {"minimum_available_percent": 40, "maximum_dirty_percent": 5},
    "memory_size": {"minimum_gib": 2000, "minimum_node_gib": 1000},
    "mounts": {"/home": {"type": "nfs4", "options": ["hard"]}, "/mnt/old": "absent"},
    "nfs": NFS,
    "numa_topology": {"nodes": 2, "cpus_per_node": 4},
    "os_release": {"id": "ubuntu", "version": "22.04"},
    "raid": {},
    "smt": {"enabled": True},
    "uptime": {"maximum_days": 100, "minimum_s": 600},
}
FOUND = {  # fault -> the checks and subjects that fail
    "dimm-dead": {("memory_size", ""), ("memory_size", "1")},
    "inodes-full": set(),  # a node that is booted has file systems and mounts of its own
    "kernel-differs": {("kernel", "")},
    "mount-left": set(),
    "mount-missing": set(),
    "mount-option-other": set(),
    "mount-other": set(),
    "mount-read-only": set(),
    "nfs-option-other": {("nfs", "/home")},
    "nfs-retransmissions": {("nfs", "/home")},
    "nfs-slow": {("nfs", "/home")},
    "numa-interleaved": {("numa_topology", ""), ("numa_topology", "0")},
    "raid-degraded": {("raid", "md0")},
    "smt-off": {
        ("cpu_topology", ""),
        ("numa_topology", "0"),
        ("numa_topology", "1"),
        ("smt", ""),
    },
    "turbo-off": {("cpu_frequency", "")},
}
Judged = Callable[..., list[tuple[str, Finding]]]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """What these checks say of a node with these faults."""

    def run(*faults: str) -> list[tuple[str, Finding]]:
        known: dict[str, object] = {"gpus": "h100-sxm", "cores": 2, "faults": list(faults)}
        known["nfs"] = "/home"
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        root = tmp_path / f"root-{'-'.join(faults)}"
        machine = SimulatedMachine("n1", machine_id("n1"))
        tree.write_out(machine, node.files, node.links, node.device_nodes, root)
        evidence = probed(str(root.resolve()))
        return [
            (name, finding)
            for name in SAID
            for finding in CATALOG.check(name).judge(evidence, params(name))
        ]

    return run


def params(name: str) -> Any:
    found = params_of(CATALOG.check(name), SAID[name])
    assert found is not None, name
    return found


def probed(root: str) -> Evidence:
    wanted = sorted({"pci"}.union(*(CATALOG.check(name).sections for name in SAID)))
    asks: dict[str, list[str]] = {}
    for name in SAID:
        asked = CATALOG.check(name).asks
        for section, names in (asked(params(name)) if asked else {}).items():
            asks.setdefault(section, []).extend(names)
    found = gather(wanted, root, {"asks": asks, "whole_machine": True}, 30.0)
    return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": found}))


def wrong(findings: list[tuple[str, Finding]]) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is Verdict.FAIL}


def test_a_healthy_node_is_ok(judged: Judged) -> None:
    odd = [(name, each) for name, each in judged() if each.verdict is not Verdict.OK]
    assert {name for name, _ in odd} == {"raid"}  # there is none
    assert all(each.verdict is Verdict.NOT_APPLICABLE for _, each in odd)


@pytest.mark.parametrize("fault", sorted(FOUND))
def test_a_fault_is_found_and_nothing_else(fault: str, judged: Judged) -> None:
    findings = judged(fault)
    assert wrong(findings) == FOUND[fault]
    assert not [each for each in findings if each[1].verdict is Verdict.UNKNOWN]


def test_all_storage_faults_are_tried_and_found_when_combined(judged: Judged) -> None:
    assert FOUND.keys() == storage.FAULTS.keys() | cpu_memory.FAULTS.keys()
    together = sorted(FOUND.keys() - {"nfs-option-other", "nfs-slow", "numa-interleaved"})
    expected = set().union(*(FOUND[fault] for fault in together))
    assert wrong(judged(*together)) == expected  # those left out write files of another one


def test_nfs_retransmissions_fail(tmp_path: Path) -> None:
    place = tmp_path / "proc/1"
    place.mkdir(parents=True)
    (place / "mountstats").write_text(storage_files.mountstats(864000, retransmissions=5000))
    (finding,) = CATALOG.check("nfs").judge(probed(str(tmp_path.resolve())), params("nfs"))
    assert finding.verdict is Verdict.FAIL
    assert finding.actual == {"retransmissions": "4.17%"}
