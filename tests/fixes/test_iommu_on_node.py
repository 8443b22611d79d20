"""An IOMMU that translates, on a node that GRUB boots: iommu=pt is planned, booted once, proven,
kept at the next boot, and rolled back."""

import json
from typing import Any

import pytest
from grub_on_node import put_grub

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1, nics: 0}
"""
BASELINE = "nodevet: 1\nexpect: {iommu: [identity]}\nfix: [iommu]\n"
CARE = ("--drain-hook", "true", "--settle", "0.2", "--author", "ann")


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("iommu", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 1}\n")
    put_grub(fleet, "n1")
    return fleet


def verdicts(fleet: SimulatedFleet) -> set[str]:
    return {each["verdict"] for each in fleet.vetted(*fleet.reach)["n1"]["findings"]}


def node(fleet: SimulatedFleet) -> tuple[str, str, str]:
    """Its command line, GRUB's menu, and its disk."""
    said = fleet.run_on("n1", "cat /proc/cmdline; cat /boot/grub/grub.cfg")
    line, _, menu = said.partition("\n")
    return line, menu, fleet.sim("diff", "n1", codes=(0, 1))


def test_iommu_pt_is_booted_once_kept_and_rolled_back(fleet: SimulatedFleet) -> None:
    before, plan, run = node(fleet), fleet.project / "plan.json", fleet.project / "run"
    assert verdicts(fleet) == {"fail"} and "iommu=pt" not in before[0]
    done = fleet.run_in_project("plan", *fleet.reach, *CARE, "--reboot", "-o", plan)
    assert done.returncode == 1, done
    done = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert done.returncode == 0, done
    done = fleet.run_in_project("apply", plan, *fleet.reach, "--run", run)
    assert done.returncode == 0, done
    host: dict[str, Any] = json.loads((run / "result.json").read_text())["hosts"][0]
    assert host["outcome"] == "verified_after_reboot", host
    fleet.sim("reboot", "n1")
    line, menu, _ = node(fleet)
    assert verdicts(fleet) == {"ok"} and line.split()[-1] == "iommu=pt"
    assert "before nodevet GNU/Linux" in menu, "an entry with the old line stays"
    assert fleet.run_in_project("plan", *fleet.reach).returncode == 0
    done = fleet.run_in_project("rollback", run)
    assert done.returncode == 0 and "after the reboot" in done.stdout, done
    fleet.sim("reboot", "n1")
    assert node(fleet) == before and verdicts(fleet) == {"fail"}
