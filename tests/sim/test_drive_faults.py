"""Each condition of a drive's health has a fault by name, and fails by it alone: what the drives'
programs print is parsed, and no node is booted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.collectors import drives, numa, nvme, pci
from nodevet.remote.probe.smart import parse_log
from nodevet_sim import tree
from nodevet_sim.description import SimulatedNode
from nodevet_sim.faults.drives import FAULTS
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin
from nodevet_sim.storage_files import LOGS

CATALOG = Catalog()
NVME = {
    "count": 8,
    "firmware": "E2MU2*",
    "maximum_temperature_c": 75,
    "maximum_unsafe_shutdowns": 100,
    "model": "Micron_7450*",
}
SATA = {"maximum_reallocated": 10, "maximum_temperature_c": 60}
SAID: dict[str, Any] = {"drive_health": SATA, "nvme_count": 8, "nvme_health": NVME, "pci_links": {}}
DISK, FIRST = ("drive_health", "/dev/bus/0 megaraid,4"), ("nvme_health", "0")
PLACE = "0000:18:00.0"
FOUND: dict[str, dict[tuple[str, str], set[str]]] = {  # fault -> check and subject -> what is wrong
    "disk-attribute-failed": {DISK: {"below threshold"}},
    "disk-failing": {
        DISK: {"below threshold", "pending", "reallocated", "uncorrectable", "verdict"}
    },
    "disk-hot": {DISK: {"temperature"}},
    "disk-offline": {("drive_health", "sda"): {"state"}},
    "disk-pending": {DISK: {"pending"}},
    "disk-reallocated": {DISK: {"reallocated"}},
    "disk-self-failed": {DISK: {"verdict"}},
    "disk-uncorrectable": {DISK: {"uncorrectable"}},
    "disk-worn": {DISK: {"endurance used"}},
    "drive-dead": {FIRST: set()},
    "drive-failing": {
        FIRST: {"critical warning", "endurance used", "media errors", "spare blocks"}
    },
    "drive-firmware-other": {FIRST: {"firmware"}},
    "drive-hot": {FIRST: {"temperature"}},
    "drive-media-errors": {FIRST: {"media errors"}},
    "drive-missing": {("nvme_count", ""): set(), ("nvme_health", ""): {"drives"}},
    "drive-model-other": {FIRST: {"model"}},
    "drive-narrow": {("pci_links", PLACE): set()},
    "drive-shutdowns": {FIRST: {"unsafe shutdowns"}},
    "drive-spare-low": {FIRST: {"spare blocks"}},
    "drive-unbound": {("nvme_health", ""): {"drives"}, ("nvme_health", PLACE): set()},
    "drive-warning": {FIRST: {"critical warning"}},
    "drive-worn": {FIRST: {"endurance used"}},
}
Judged = Callable[[list[str]], list[tuple[str, Finding]]]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """What these checks say of a node with these faults."""

    def run(faults: list[str]) -> list[tuple[str, Finding]]:
        known: dict[str, object] = {"gpus": "h100-sxm", "cores": 1, "faults": faults}
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        tree.write_out(machine, node.files, node.links, node.device_nodes, tmp_path / "root")
        root = str((tmp_path / "root").resolve())
        Path(root, "sys/block").mkdir(exist_ok=True)  # block devices are not simulated
        found = {
            "drives": smartctl_drives(node, tmp_path, monkeypatch) or drives.collect(root, {}),
            "host": {"virtualization": "none"},
            "numa": numa.collect(root, {}),
            "nvme": nvme_controllers(node, root),
            "pci": pci.collect(root, {}),
        }
        sections = {name: {"status": "ok", "data": data} for name, data in found.items()}
        document = {"schema": 1, "probe": "0", "sections": sections}
        evidence = decode(msgspec.json.encode(document))
        asked = {**SAID, "drive_health": {**SATA, "smart": "/usr/sbin/smartctl" in node.root_files}}
        checks = {name: CATALOG.check(name) for name in asked}
        return [
            (name, finding)
            for name, check in checks.items()
            for finding in check.judge(evidence, params_of(check.params, asked[name]))
        ]

    return run


def smartctl_drives(
    node: SimulatedNode, place: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any] | None:
    """The drives behind a controller, if the node has smartctl."""
    text = node.root_files.get("/usr/sbin/smartctl")
    if text is None:
        return None
    program = place / "smartctl"
    program.write_text(str(text))
    program.chmod(0o755)
    monkeypatch.setattr(drives, "find_program", lambda name: str(program))
    monkeypatch.setattr(drives, "disks", lambda root: [])
    return dict(drives.collect("/", {"asks": {"drives": ["health"]}}))


def nvme_controllers(node: SimulatedNode, root: str) -> dict[str, Any]:
    """The controllers, each with the log that its drive gives."""
    data = nvme.collect(root, {"asks": {"nvme": ["health"]}})
    for record in data["controllers"]:
        if record["state"] == "live":
            log = parse_log(str(node.root_files[f"{LOGS}/{record['name']}.json"]))
            record["health"] = {**log, "tool": "nvme"}
            del record["errors"]["health"]
    return dict(data)


def wrong(findings: list[tuple[str, Finding]]) -> dict[tuple[str, str], set[str]]:
    """What is wrong, by check and subject; nothing where a finding is about one thing."""
    return {
        (name, each.subject.id): set(each.actual) if isinstance(each.actual, dict) else set()
        for name, each in findings
        if each.verdict is Verdict.FAIL
    }


def test_a_healthy_node_is_ok(judged: Judged) -> None:
    verdicts = {(name, each.verdict) for name, each in judged([])}
    assert verdicts == {
        ("drive_health", Verdict.NOT_APPLICABLE),  # there is no such drive
        *((name, Verdict.OK) for name in ("nvme_count", "nvme_health", "pci_links")),
    }


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", sorted(FOUND))
def test_a_fault_makes_its_condition_fail_and_no_other(fault: str, judged: Judged) -> None:
    findings = judged([fault])
    assert wrong(findings) == FOUND[fault]
    assert not [each for _, each in findings if each.verdict is Verdict.UNKNOWN]
