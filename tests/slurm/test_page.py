"""docs/integrations/slurm.md does what it shows: simulated nodes, which a real Slurm knows.

`NODEVET_CONSOLE=write` writes into the page what comes out.
"""

import os
from pathlib import Path

import pytest
from console_blocks import Command, blocks, is_alike, plain_text, rewritten_page
from nodevet_on_node import install, write
from one_machine_slurm import Slurm
from slurm_on_node import start_slurm, with_slurm

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "slurm.md"
SCENARIO = """\
sim: 1
templates: {h100: {gpus: h100-sxm, cores: 8}}
nodes:
  gpu[001-002]: {template: h100}
  gpu003: {template: h100, faults: [power-capped]}
"""


@pytest.fixture(scope="module")
def more() -> str:
    return (
        "NodeName=gpu[001-003] NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\n"
        "PartitionName=gpu Nodes=gpu[001-003] State=UP\n"
    )


@pytest.fixture
def fleet(boot: Boot) -> SimulatedFleet:
    """The nodes, and a home whose ssh reaches them by their names."""
    fleet = boot("slurmpage", SCENARIO)
    config = [f"Host {host.name}\n  HostName {host.address}" for host in fleet.hosts.values()]
    config += ["Match all\n  User root", f"  IdentityFile {fleet.place.key}"]
    config += [f"  UserKnownHostsFile {fleet.place.known_hosts}"]
    (fleet.project / ".ssh").mkdir(mode=0o700)
    (fleet.project / ".ssh/config").write_text("\n".join(config) + "\n")
    return fleet


def test_the_commands_of_the_slurm_page_give_the_output_it_shows(
    running: Slurm, fleet: SimulatedFleet, is_other: bool
) -> None:
    def run(text: str) -> tuple[int, str]:
        return fleet.shell(text, SLURM_CONF=str(running.conf))

    def on(node: str, text: str) -> tuple[int, str]:
        told, _, code = (
            with_slurm(fleet, node, f"cd /; {text} 2>&1; echo $?").rstrip().rpartition("\n")
        )
        return int(code), told

    differs: list[tuple[Command, str]] = []
    for block in blocks(PAGE):
        if name := block.mark("file"):
            (fleet.project / name).write_text(block.text)
        if block.kind != "console":
            continue
        for text in block.before_commands:
            assert run(text)[0] == 0, text
        if node := block.mark("on"):
            install(fleet, node)
            fleet.run_on(
                node, write("/etc/nodevet/site.yaml", (fleet.project / "site.yaml").read_text())
            )
            start_slurm(fleet, node, other=is_other)
        for command, wanted in zip(block.commands, block.exits, strict=True):
            code, printed = on(node, command.text) if node else run(command.text)
            assert code == wanted, f"{command.text}\n{printed}"
            if not is_alike(command.shown, printed):
                differs.append((command, printed))
    if os.environ.get("NODEVET_CONSOLE") == "write":
        text = PAGE.read_text(encoding="utf-8")
        for command, printed in reversed(differs):
            text = rewritten_page(text, command, printed)
        PAGE.write_text(text, encoding="utf-8")
    assert [(command.text, plain_text(printed)) for command, printed in differs] == []
