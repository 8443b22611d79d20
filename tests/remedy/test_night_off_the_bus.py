"""One night on simulated nodes: a GPU of each falls off the bus. No reset reaches it, and a reboot
does not help. A power cycle helps one of them, which is given back; the other node stays drained,
and then it does not even come on. Each command is the one that the report before it names."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from bmcs import Emulator
from two_bmcs import two_bmcs, two_nodes
from typed_commands import (
    CARE,
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

from nodevet_sim.nspawn.control import ask
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = two_nodes(
    2,
    "gpu-lost: {gpu: 1, cleared_by: power}, xid-79: {gpu: 1}",
    "gpu-lost: {gpu: 1, cleared_by: nothing}, xid-79: {gpu: 1}",
)
BASELINE = """\
nodevet: 1
expect: {gpu_lost: {}, gpu_count: 2, pcie_link: {generation: max, width: max}}
fix: [gpu_lost]
"""
BOTH = {"gpu1", "gpu2"}
LOST = "off the bus, NVML_ERROR_GPU_IS_LOST"
NO_RESET = "no reset reaches a GPU that is lost or off the bus"
STAYS_OFF = '#!/bin/sh\n[ "$2 $3 $4" = "set power 1" ] || exec {} "$@"\n'
"""A power hook: the BMC accepts On, and the node stays off."""


class Night(NamedTuple):
    fleet: SimulatedFleet
    bmc: Emulator  # of gpu2

    def findings(self, host: str) -> dict[tuple[str, str], Any]:
        """By check and subject, those that are not ok."""
        findings = self.fleet.vetted(*self.fleet.reach)[host]["findings"]
        return {
            (each["check"], each.get("subject", {}).get("id", "")): each
            for each in findings
            if each["verdict"] in ("fail", "unknown")
        }


@pytest.fixture(scope="module")
def night(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    fleet = boot("offbus", SCENARIO, BASELINE)
    with two_bmcs(fleet, tmp_path_factory.mktemp) as (_, redfish):
        yield Night(fleet, redfish)


def test_plans_for_a_gpu_off_the_bus_escalate_from_reboot_to_power_cycle(night: Night) -> None:
    fleet = night.fleet
    said = type_(fleet, f"nodevet check {reach(fleet)} --deadline 150", 1).stdout
    assert f"gpu_lost  {LOST}, expected usable  2 hosts  gpu[1-2] GPU 1" in said
    assert "needs a power cycle: " in said and "no reset reaches the GPU" in said
    found = night.findings("gpu1")
    assert found["gpu_lost", "1"]["action"] == found["gpu_count", "1"]["action"] == "power_cycle"
    assert fleet.run_on("gpu1", "nvidia-smi --gpu-reset -i 1; echo $?").splitlines()[-1] == "15"

    said = type_(fleet, "nodevet explain gpu_lost", 0).stdout
    assert "off the bus" in said and "a reset cannot help" in " ".join(said.split())
    said = plan_of(fleet, f"nodevet plan {reach(fleet)} --drain-hook ./hook")
    assert NO_RESET in said and "risk reboot; cannot be undone" in said, said
    assert "follows from gpu_lost" in said and "No fix available" not in said, said
    outcomes, done = apply_plan(fleet, 0)
    assert outcomes == dict.fromkeys(BOTH, "pending"), done
    assert drained(fleet) == BOTH and "undo it" not in done.stderr

    outcomes, said = carry_out(fleet, next_command(done.stdout, "--reboot"), 1)
    assert outcomes == dict.fromkeys(BOTH, FAILED), said
    assert f"after the reboot GPU 1: {LOST}, expected usable" in said
    assert drained(fleet) == BOTH

    said = plan_of(fleet, next_command(said, "--power-cycle"))
    outcomes, done = apply_plan(fleet, 1)
    assert outcomes == {"gpu1": "verified_after_reboot", "gpu2": FAILED}, done
    assert drained(fleet) == {"gpu2"} and night.findings("gpu1") == {}
    assert "a power cycle did not help: a person must look at the part" in done.stdout
    said = type_(fleet, "nodevet status", 1).stdout
    assert "still drained by this run: gpu2" in said
    assert "undo" not in done.stderr + said

    said = type_(fleet, next_command(said, "gpu2: "), 0).stdout
    assert "gpu2  on" in said, said
    assert night.findings("gpu2")["gpu_lost", "1"]["actual"] == LOST


def test_a_node_that_does_not_power_on_stays_drained(night: Night) -> None:
    """A person tries the power cycle once more; the second On works."""
    fleet, hook = night.fleet, night.bmc.folder / "hook"
    works = hook.with_name("works")
    hook.rename(works)
    hook.write_text(STAYS_OFF.format(works))
    hook.chmod(0o755)
    plan = f"nodevet plan {reach(fleet)} --limit gpu2 --again --power-cycle --drain-hook ./hook"
    outcomes, said = carry_out(fleet, plan, 3, f"{CARE} --reboot-timeout 20s")
    assert outcomes == {"gpu2": "unknown"} and drained(fleet) == {"gpu2"}
    assert "it does not report On after 20 s" in said, said
    assert "its power cycle did not end with the power on: look at its BMC" in said, said
    resume = next_command(said, "--resume")
    assert "gpu2  off" in type_(fleet, next_command(said, "bmc show"), 0).stdout
    said = fleet.nodevet("check", *reach(fleet).split()).stdout
    assert "its BMC says that the power is off" in said, said

    works.replace(hook)
    assert str(newest_run(fleet)).endswith(resume.split()[3].rpartition("/")[2])
    said = type_(fleet, f"{resume} --deadline 150", 1).stdout
    assert "a person must look at the part, or replace it (RMA)" in said, said
    assert drained(fleet) == {"gpu2"}
    nodes = {node["name"]: node["state"] for node in ask(fleet.place, {"do": "list"})["nodes"]}
    assert nodes == dict.fromkeys(BOTH, "running")
