"""Faults of the software around the driver are found by their check and by no other: probed, not
booted."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.children import gather
from nodevet.remote.probe.collectors import dcgm, slurm
from nodevet_sim import tree
from nodevet_sim.description import SimulatedNode
from nodevet_sim.faults.software import DCGMI, FAULTS, SCONTROL
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
SAID: dict[str, dict[str, Any]] = {  # check -> its params
    "container_runtime": {"cdi": True},
    "dcgm": {"health": False, "diag": "/var/log/dcgm-diag.json"},
    "dkms": {},
    "environment": {},
    "imex": {"service": False, "nodes": 18},
    "ofed": {"version": "inbox"},
    "secure_boot": {"enabled": False},
}
FOUND = {  # fault -> the checks and subjects that fail
    "cdi-stale": {("container_runtime", "/etc/cdi/nvidia.yaml")},
    "cdi-other-gpus": {("container_runtime", "/etc/cdi/nvidia.yaml")},
    "imex-channel-missing": {("imex", "channels")},
    "library-preloaded": {("environment", "LD_PRELOAD")},
    "nccl-p2p-off": {("environment", "NCCL_P2P_DISABLE")},
    "slurm-gpus-other": set(),  # scontrol says so: see below
    "stubs-in-path": {("environment", "LD_LIBRARY_PATH")},
    "dcgm-count": set(),  # dcgmi says so: see below
    "dcgm-warning": set(),
    "diag-failed": {("dcgm", "diag memory GPU 3")},
    "dkms-not-built": {("dkms", "nvidia")},
    "gpus-hidden": {("environment", "CUDA_VISIBLE_DEVICES")},
    "imex-down": set(),  # what systemd says
    "imex-peer-missing": {("imex", "nodes")},
    "library-missing": set(),
    "package-unwanted": set(),
    "toolkit-missing": set(),
    "imex-peers-wrong": {("imex", "nodes")},
    "library-empty": set(),  # what a boot does; see test_software_on_nodes.py
    "ofed-old": {("ofed", "mlx5_core")},
    "package-unfinished": set(),
    "secure-boot-on": {("secure_boot", "")},
    "slurm-drained": set(),
    "torch-cpu": set(),  # what the interpreter says
}
ONE_FILE = {
    "cdi-other-gpus",
    "dcgm-warning",
    "imex-peer-missing",
    "slurm-gpus-other",
}  # another fault writes it, too
PARAMS = {
    name: msgspec.json.decode(json.dumps(said), type=CATALOG.check(name).params)
    for name, said in SAID.items()
}
SECTIONS = ("containers", "dcgm", "dkms", "environment", "imex", "modules")

Judged = Callable[..., list[tuple[str, Finding]]]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """What these checks say of a node with these faults."""

    def run(faults: list[str], gpus: str = "h100-sxm") -> list[tuple[str, Finding]]:
        known: dict[str, object] = {"gpus": gpus, "cores": 1, "faults": faults}
        if gpus == "h100-sxm":
            known["nvlink_domain"] = 18
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        root = tmp_path / "root"
        tree.write_out(machine, node.files, node.links, node.device_nodes, root)
        for path, content in node.root_files.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        asks = {"dcgm": ["/var/log/dcgm-diag.json"]}
        found = gather(SECTIONS, str(root.resolve()), {"asks": asks}, 30.0)
        found["gpu"] = {"status": "ok", "data": nvml_of(node)}
        document = {"schema": 1, "probe": "0", "sections": found}
        evidence = decode(msgspec.json.encode(document))
        return [
            (name, finding)
            for name in SAID
            for finding in CATALOG.check(name).judge(evidence, PARAMS[name])
        ]

    return run


def nvml_of(node: SimulatedNode) -> dict[str, Any]:
    """What NVML would say of the node's GPUs, as far as these checks ask."""
    rows = (row.partition(" = ") for row in (node.state or "").splitlines())
    told = {key: value for key, _, value in rows}
    count = int(told["count"])
    gpus = [
        {
            "index": index,
            "mig_current": False,
            "fabric": {"cluster_uuid": told.get(f"gpu.{index}.fabric.cluster_uuid", "0")},
            **{
                key: told.get(f"gpu.{index}.{key}", told.get(f"gpu.*.{key}"))
                for key in ("uuid", "serial", "bus_id")
            },
        }
        for index in range(count)
    ]
    return {"driver_version": told["driver_version"], "count": count, "gpus": gpus}


def wrong(findings: list[tuple[str, Finding]]) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is Verdict.FAIL}


@pytest.mark.parametrize("profile", ["h100-sxm", "a100-sxm-80", "l40s", "rtx-4090", "t4"])
def test_a_healthy_node_is_ok(profile: str, judged: Judged) -> None:
    odd = [
        (name, each)
        for name, each in judged([], gpus=profile)
        if each.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE)
        and name != "ofed"  # a node without such a NIC has no such driver
        and (name != "imex" or profile == "h100-sxm")  # the others are in no NVLink domain
    ]
    assert odd == []


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_is_found_and_nothing_else(fault: str, judged: Judged) -> None:
    assert wrong(judged([fault])) == FOUND[fault]


def test_all_software_faults_are_found_when_combined(judged: Judged) -> None:
    assert wrong(judged(sorted(FAULTS.keys() - ONE_FILE))) == set().union(*FOUND.values())


def judge_output(
    module: ModuleType, program: str, fault: str, place: Path, patch: pytest.MonkeyPatch
) -> list[tuple[str, Finding]]:
    """What a check says of what a program of the node prints."""
    known: dict[str, object] = {"gpus": "h100-sxm", "faults": [fault]}
    part = NodePart.model_validate_json(json.dumps(known))
    node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
    (place / "program").write_text(str(node.root_files[program]))
    (place / "program").chmod(0o755)
    patch.setattr(module, "find_program", lambda name: str(place / "program"))
    section = module.__name__.rpartition(".")[2]
    asks = {"dcgm": ["health"], "slurm": ["n1"]}
    found = {
        section: module.collect("/", {"asks": asks}),
        "gpu": nvml_of(node),
        "pci": {"functions": []},
    }
    sections = {name: {"status": "ok", "data": data} for name, data in found.items()}
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections}))
    name, params = ASKED[section]
    check = CATALOG.check(name)
    return [(name, each) for each in check.judge(evidence, params_of(check.params, params))]


ASKED: dict[str, tuple[str, Any]] = {
    "dcgm": ("dcgm", {}),
    "slurm": ("slurm_node", {"node": "n1"}),
}


@pytest.mark.parametrize(
    ("module", "program", "fault", "subject"),
    [
        (dcgm, DCGMI, "dcgm-count", ("dcgm", "GPUs")),
        (dcgm, DCGMI, "dcgm-warning", ("dcgm", "GPU 3 PCIe system")),
        (slurm, SCONTROL, "slurm-drained", ("slurm_node", "state")),
        (slurm, SCONTROL, "slurm-gpus-other", ("slurm_node", "GPUs")),
    ],
)
def test_only_the_output_of_the_program_is_used(
    module: ModuleType,
    program: str,
    fault: str,
    subject: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = judge_output(module, program, fault, tmp_path, monkeypatch)
    assert wrong(findings) == {subject}
    assert not [each for _, each in findings if each.verdict is Verdict.UNKNOWN]


def test_what_a_watch_of_dcgm_says_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = judge_output(dcgm, DCGMI, "dcgm-warning", tmp_path, monkeypatch)
    (warning,) = [each for _, each in findings if each.verdict is Verdict.FAIL]
    assert warning.actual == "Warning" and "replays" in warning.why
