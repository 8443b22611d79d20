"""Faults of NICs and drives are found by their check and by no other: probed, not booted."""

from pathlib import Path

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.model import Verdict
from nodevet.remote.probe.collectors import numa, pci
from nodevet_sim import tree
from nodevet_sim.faults.devices import FAULTS
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
NIC = "0000:1a:00.0"
FOUND = {
    "": set(),
    "nic-missing": set(),
    "nic-narrow": {("pci_links", NIC)},
}  # fault -> checks and subjects that fail
SAID = {"pci_links": {}, "nvme_count": {"count": 8}}


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() - {""} == FAULTS.keys()


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_of_a_device_is_found_and_nothing_else(fault: str, tmp_path: Path) -> None:
    known = {"gpus": "h100-sxm", "cores": 1, "faults": [fault] if fault else []}
    part = NodePart.model_validate(known)
    node = describe(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
    machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
    tree.write_out(machine, node.files, node.links, node.device_nodes, tmp_path / "root")
    root = str((tmp_path / "root").resolve())
    sections = {
        "pci": {"status": "ok", "data": pci.collect(root, {})},
        "numa": {"status": "ok", "data": numa.collect(root, {})},
        "host": {"status": "ok", "data": {"virtualization": "none"}},
    }
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections}))
    found = {
        (name, finding.subject.id)
        for name, said in SAID.items()
        for finding in CATALOG.check(name).judge(
            evidence, msgspec.convert(said, CATALOG.check(name).params)
        )
        if finding.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE)
    }
    assert found == FOUND[fault]
