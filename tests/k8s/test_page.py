"""docs/integrations/kubernetes.md does what it shows: simulated nodes, which a stand-in for the API
server knows.

`NODEVET_CONSOLE=write` writes into the page what comes out.
"""

import os
from pathlib import Path

import pytest
from console_blocks import Command, blocks, is_alike, plain_text, rewritten_page
from kubernetes_api import ApiServer

from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(600)
PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "kubernetes.md"
SCENARIO = """\
sim: 1
templates: {h100: {gpus: h100-sxm, cores: 8}}
nodes:
  gpu001: {template: h100}
  gpu002: {template: h100, faults: [power-capped]}
"""
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "topology.kubernetes.io/zone": "a",
}


def test_the_page_does_what_it_shows(api: ApiServer, boot: Boot) -> None:
    fleet = boot("k8spage", SCENARIO)
    for host in fleet.hosts.values():
        addresses = [{"type": "InternalIP", "address": host.address}]
        status = {"addresses": addresses, "conditions": []}
        api.add("nodes", host.name, metadata={"labels": LABELS}, status=status)
    api.add("nodes", "cpu001", status={"conditions": []})
    config = f"Match all\n  User root\n  IdentityFile {fleet.place.key}\n"
    config += f"  UserKnownHostsFile {fleet.place.known_hosts}\n"
    (fleet.project / ".ssh").mkdir(mode=0o700)
    (fleet.project / ".ssh/config").write_text(config)

    differs: list[tuple[Command, str]] = []
    for block in blocks(PAGE):
        if name := block.mark("file"):
            (fleet.project / name).write_text(block.text)
        if block.kind != "console":
            continue
        for text in block.before_commands:
            assert fleet.shell(text)[0] == 0, text
        if "k8s expire" in block.text:
            api.add("nodes", "gpu003", metadata={"labels": LABELS}, status={"conditions": []})
        for command, wanted in zip(block.commands, block.exits, strict=True):
            code, printed = fleet.shell(command.text)
            assert code == wanted, f"{command.text}\n{printed}"
            if not is_alike(command.shown, printed):
                differs.append((command, printed))
    if os.environ.get("NODEVET_CONSOLE") == "write":
        text = PAGE.read_text(encoding="utf-8")
        for command, printed in reversed(differs):
            text = rewritten_page(text, command, printed)
        PAGE.write_text(text, encoding="utf-8")
    assert [(command.text, plain_text(printed)) for command, printed in differs] == []
    assert api.condition("gpu002")["status"] == "True"
