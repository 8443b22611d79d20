"""One night on simulated nodes: two GPUs ask for a reset, which does not help, nor does a reboot. A
power cycle helps one of them; the other node stays drained for a person. Each command is the one
that the report before it names."""

import json
import shlex
from collections.abc import Iterator

import pytest
from two_bmcs import two_bmcs

from nodevet_sim.nspawn.needs import missing
from simulated_fleet import Boot, Done, SimulatedFleet

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
    pytest.mark.timeout(1500),
]
SCENARIO = """\
sim: 1
nodes:
  gpu1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [{recovery-needed: {gpu: 0, action: GPU_RESET, cleared_by: power}}]
  gpu2:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [{recovery-needed: {gpu: 0, action: GPU_RESET, cleared_by: nothing}}]
"""
BASELINE = "nodevet: 1\nexpect: {gpu_lost: {}}\nfix: [gpu_lost]\n"
CARE = "--author ann --settle 0.2s --boot-settle 1s --canary 0 --max-fail 2"
BOTH = {"gpu1", "gpu2"}
FAILED = "failed_and_rolled_back"


@pytest.fixture(scope="module")
def fleet(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFleet]:
    fleet = boot("night", SCENARIO, BASELINE)
    with two_bmcs(fleet, tmp_path_factory.mktemp):
        yield fleet


def type_(fleet: SimulatedFleet, line: str, code: int) -> Done:
    program, *words = shlex.split(line)
    assert program == "nodevet"
    done = fleet.nodevet(*words)
    assert done.returncode == code, done
    return done


def carried_out(fleet: SimulatedFleet, plan: str, code: int) -> tuple[dict[str, str], str]:
    """The plan that this command makes, approved and applied: the outcome of each host, and what
    the report says."""
    (fleet.project / "plan.json").unlink(missing_ok=True)
    type_(fleet, f"{plan} {CARE} -o plan.json --deadline 150", 1)
    type_(fleet, "nodevet approve plan.json --key bob --yes", 0)
    inventories = f"-i {fleet.place.inventory} -i bmcs.yaml"
    done = type_(fleet, f"nodevet apply plan.json {inventories} -b base --deadline 150", code)
    results = sorted(
        (fleet.project / "runs").glob("*/result.json"), key=lambda x: x.stat().st_mtime
    )
    hosts = json.loads(results[-1].read_bytes())["hosts"]
    return {host["host"]: host["outcome"] for host in hosts}, done.stdout


def next_command(said: str, word: str) -> str:
    """The command after `next:` that has this word."""
    lines = [line for line in said.splitlines() if line.startswith("next: ") and word in line]
    assert len(lines) == 1, said
    return lines[0][lines[0].index("nodevet ") :].removesuffix(" -o plan.json")


def drained(fleet: SimulatedFleet) -> set[str]:
    return {path.name.removeprefix("drained-") for path in fleet.project.glob("drained-*")}


def test_reset_reboot_power_cycle_and_a_person(fleet: SimulatedFleet) -> None:
    reach = f"-i {fleet.place.inventory} -i bmcs.yaml -b base"
    done = type_(fleet, f"nodevet check {reach} --deadline 150", 1)
    assert "GPU_RESET" in done.stdout

    outcomes, said = carried_out(fleet, f"nodevet plan {reach} --drain-hook ./hook", 1)
    assert outcomes == dict.fromkeys(BOTH, FAILED), said
    assert "GPU 0: GPU_RESET, expected usable; next: reboot the node" in said
    assert drained(fleet) == BOTH

    outcomes, said = carried_out(fleet, next_command(said, "--reboot"), 1)
    assert outcomes == dict.fromkeys(BOTH, FAILED), said
    assert "after the reboot GPU 0: GPU_RESET, expected usable" in said
    assert drained(fleet) == BOTH

    outcomes, said = carried_out(fleet, next_command(said, "--power-cycle"), 1)
    assert outcomes == {"gpu1": "verified_after_reboot", "gpu2": FAILED}, said
    assert drained(fleet) == {"gpu2"}  # the hook gave gpu1 back
    assert "a person must look at the part, or replace it (RMA)" in said
    assert next_command(said, "gpu2: ").startswith("nodevet bmc show ")

    run = max((fleet.project / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    done = type_(fleet, f"nodevet rollback {run} --host gpu1", 1)
    assert "reboot the node: cannot be undone" in done.stdout
    assert "effective after" not in done.stdout

    done = fleet.at("check", *fleet.reach, "--format", "json", "--all")
    verdicts = {
        host["host"]: [each["verdict"] for each in host["findings"] if each["subject"]["kind"]]
        for host in json.loads(done.stdout)["hosts"]
    }
    assert set(verdicts["gpu1"]) == {"ok"}
    assert "fail" in verdicts["gpu2"]
