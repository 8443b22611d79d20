"""One night on simulated nodes: two GPUs ask for a reset, which does not help, nor does a reboot. A
power cycle helps one of them; the other node stays drained for a person. Each command is the one
that the report before it names."""

import json
from collections.abc import Iterator

import pytest
from two_bmcs import two_bmcs, two_nodes
from typed_commands import FAILED, carry_out, drained, newest_run, next_command, reach, type_

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = two_nodes(
    1,
    "recovery-needed: {gpu: 0, action: GPU_RESET, cleared_by: power}",
    "recovery-needed: {gpu: 0, action: GPU_RESET, cleared_by: nothing}",
)
BASELINE = "nodevet: 1\nexpect: {gpu_lost: {}}\nfix: [gpu_lost]\n"
BOTH = {"gpu1", "gpu2"}


@pytest.fixture(scope="module")
def fleet(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFleet]:
    fleet = boot("night", SCENARIO, BASELINE)
    with two_bmcs(fleet, tmp_path_factory.mktemp):
        yield fleet


def test_plans_escalate_from_gpu_reset_to_reboot_to_power_cycle_to_a_person(
    fleet: SimulatedFleet,
) -> None:
    done = type_(fleet, f"nodevet check {reach(fleet)} --deadline 150", 1)
    assert "GPU_RESET" in done.stdout

    outcomes, said = carry_out(fleet, f"nodevet plan {reach(fleet)} --drain-hook ./hook", 1)
    assert outcomes == dict.fromkeys(BOTH, FAILED), said
    assert "GPU 0: GPU_RESET, expected usable; next: reboot the node" in said
    assert drained(fleet) == BOTH

    outcomes, said = carry_out(fleet, next_command(said, "--reboot"), 1)
    assert outcomes == dict.fromkeys(BOTH, FAILED), said
    assert "after the reboot GPU 0: GPU_RESET, expected usable" in said
    assert drained(fleet) == BOTH

    outcomes, said = carry_out(fleet, next_command(said, "--power-cycle"), 1)
    assert outcomes == {"gpu1": "verified_after_reboot", "gpu2": FAILED}, said
    assert drained(fleet) == {"gpu2"}  # the hook gave gpu1 back
    assert "a person must look at the part, or replace it (RMA)" in said
    assert next_command(said, "gpu2: ").startswith("nodevet bmc show ")

    done = type_(fleet, f"nodevet rollback {newest_run(fleet)} --host gpu1", 1)
    assert "reboot the node: cannot be undone" in done.stdout
    assert "effective after" not in done.stdout

    done = fleet.run_in_project("check", *fleet.reach, "--format", "json", "--all")
    verdicts = {
        host["host"]: [each["verdict"] for each in host["findings"] if each["subject"]["kind"]]
        for host in json.loads(done.stdout)["hosts"]
    }
    assert set(verdicts["gpu1"]) == {"ok"}
    assert "fail" in verdicts["gpu2"]
