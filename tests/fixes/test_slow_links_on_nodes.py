"""Slow PCIe links of GPUs and NICs on simulated nodes. A reboot trains those of two nodes again,
power off and on those of the others. They stay so after a reboot, and nothing can undo it. Each
command is the one that the report before it names."""

from collections.abc import Iterator

import pytest
from two_bmcs import two_bmcs
from typed_commands import (
    FAILED,
    apply_plan,
    carry_out,
    drained,
    newest_run,
    next_command,
    plan_of,
    reach,
    type_,
)

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1200)
SCENARIO = """\
sim: 1
templates:
  node: {gpus: {profile: h100-sxm, count: 2}, sockets: 1, cores: 1, nics: 1}
nodes:
  gpu1: {template: node, faults: [{pcie-width: {gpu: 1, cleared_by: power}}]}
  gpu2: {template: node, faults: [{nic-narrow: {cleared_by: power}}]}
  gpu3: {template: node, faults: [{pcie-gen: {gpu: 1, cleared_by: reboot}}]}
  gpu4: {template: node, faults: [{nic-narrow: {cleared_by: reboot}}]}
"""
BASELINE = """\
nodevet: 1
expect: {pcie_link: {generation: max, width: max}, pci_links: {}}
fix: [pcie_link, pci_links]
"""
SLOW = {
    "gpu1": {"pcie_link": "reboot"},
    "gpu2": {"pci_links": "reboot"},
    "gpu3": {"pcie_link": "reboot"},
    "gpu4": {"pci_links": "reboot"},
}
FAST: dict[str, dict[str, str]] = {host: {} for host in SLOW}


@pytest.fixture(scope="module")
def fleet(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFleet]:
    fleet = boot("links", SCENARIO, BASELINE)
    with two_bmcs(fleet, tmp_path_factory.mktemp):
        yield fleet


def slow(fleet: SimulatedFleet) -> dict[str, dict[str, str]]:
    """The checks that are not ok on each host, and the action that each needs."""
    return {
        host: {
            each["check"]: each.get("action")
            for each in report["findings"]
            if each["verdict"] in ("fail", "unknown")
        }
        for host, report in fleet.vetted(*fleet.reach).items()
    }


def disks(fleet: SimulatedFleet) -> dict[str, str]:
    return {host: fleet.sim("diff", host, codes=(0, 1)) for host in SLOW}


def test_a_reboot_or_a_power_cycle_retrains_slow_links(fleet: SimulatedFleet) -> None:
    before = disks(fleet)
    assert slow(fleet) == SLOW
    said = plan_of(fleet, f"nodevet plan {reach(fleet)} --drain-hook ./hook")
    assert said.count("risk reboot; cannot be undone") == 3, said  # two kinds of GPU links
    outcomes, done = apply_plan(fleet, 0)
    assert outcomes == dict.fromkeys(SLOW, "pending") and drained(fleet) == {*SLOW}, done

    outcomes, said = carry_out(fleet, next_command(done.stdout, "--reboot"), 1)
    helped, failed = ("gpu3", "gpu4"), ("gpu1", "gpu2")
    expected = dict.fromkeys(helped, "verified_after_reboot") | dict.fromkeys(failed, FAILED)
    assert outcomes == expected and drained(fleet) == {*failed}, said
    assert slow(fleet) == {**FAST, **{host: SLOW[host] for host in failed}}

    outcomes, said = carry_out(fleet, next_command(said, "--power-cycle"), 0)
    assert outcomes == dict.fromkeys(failed, "verified_after_reboot"), said
    assert drained(fleet) == set() and slow(fleet) == FAST

    for host in SLOW:
        fleet.sim("reboot", host)
    assert slow(fleet) == FAST and disks(fleet) == before
    said = type_(fleet, f"nodevet rollback {newest_run(fleet)}", 1).stdout
    assert "reboot the node: cannot be undone" in said and "next:" not in said, said
    assert slow(fleet) == FAST and disks(fleet) == before


def test_two_slow_links_of_a_node_need_one_reboot(fleet: SimulatedFleet) -> None:
    fleet.sim("set", "gpu4", "fault={pcie-width: {gpu: 0, cleared_by: reboot}}", "fault=nic-narrow")
    done = fleet.run_in_project("plan", *fleet.reach, "--limit", "gpu4", "--drain-hook", "./hook")
    assert "set pci_links  Gen5 x8 → Gen5 x16  gpu4" in done.stdout, done
    assert "pcie_link  gpu4  pci_links does it too" in done.stdout, done
