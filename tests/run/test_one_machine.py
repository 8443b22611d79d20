"""What compares hosts with one another does not take one machine for two."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodevet.diagnose.use import diagnose_visits
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.vet.use.context import open_context
from nodevet.vet.use.nodes import _nodes

GPU = "GPU-5e7a1c90-44b1-4d7e-9c11-2f6d03a8b7e4"
HOSTS: Mapping[str, Any] = {
    "gpu001": {"boot_id": "b1", "gpu": GPU},
    "gpu002": {"boot_id": "b2", "gpu": "GPU-0b9d2f34-1c6e-4a58-8f07-7733a1ce52d9"},
    "gpu003": {"boot_id": "b3", "gpu": GPU},
}
WHY = f"gpu001, gpu003 are one machine: {GPU} in common"


def visit(name: str, boot_id: str, gpu: str) -> Visit:
    sections = {"host": {"boot_id": boot_id}, "gpu": {"gpus": [{"index": 0, "uuid": gpu}]}}
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    text = json.dumps({"schema": 1, "probe": "1", "sections": whole}).encode()
    return Visit(name, Status.VETTED, "", text, 0.1)


VISITS = [visit(name, **told) for name, told in HOSTS.items()]


def test_e07_capture_and_compare_leave_out_one_machine_under_two_names() -> None:
    nodes = _nodes(HOSTS, VISITS)
    assert list(nodes.evidence) == ["gpu002"]
    assert nodes.lost == {"gpu001": WHY, "gpu003": WHY}


def test_e07_diagnose_leaves_out_one_machine_under_two_names(tmp_path: Path) -> None:
    context = open_context(tmp_path, ())
    found = diagnose_visits(((each, Host(name=each.host)) for each in VISITS), context)
    assert [host.why == WHY for host in found.hosts] == [True, False, True]
    assert found.exit_code == 3
