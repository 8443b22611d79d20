"""The life of a reset on simulated nodes: planned, approved as what cannot be undone, applied,
proven, still so after a reboot, and not rolled back. And what goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1200)
SCENARIO = """\
sim: 1
nodes:
  h100:
    gpus: {profile: h100-sxm, count: 2}
    sockets: 1
    cores: 1
    faults: [{row-remap-pending: {gpu: 1}}]
  bad:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [{gpu-reset-required: {gpu: 0, cleared_by: reboot}}]
  a100:
    gpus: {profile: a100-sxm-40, count: 2}
    sockets: 1
    cores: 1
    faults: [{recovery-needed: {gpu: 0, action: DRAIN_AND_RESET}}]
"""
BASELINE = """\
nodevet: 1
title: no GPU needs a reset
expect: {gpu_lost: {}, row_remapping: {}, power_limit: 400, persistence_mode: true}
fix: [gpu_lost, row_remapping]
"""
STATE = "/run/nodevet-sim/nvml.state"
POWER = "nvidia-smi --query-gpu=power.limit,persistence_mode --format=csv,noheader"
SET = "400.00 W, Enabled\n"
CARE = ("--drain-hook", "true", "--settle", "0.2")
MONITOR = """\
cat >/usr/bin/monitor <<'END'
import os, time
held = os.open("/dev/nvidia1", os.O_PATH)
with open("/proc/self/comm", "w") as comm:
    comm.write("nv-hostengine")
time.sleep(1e6)
END
printf '[Service]\\nExecStart=%s\\n[Install]\\nWantedBy=multi-user.target\\n' \\
    '/usr/bin/python3 /usr/bin/monitor' >/etc/systemd/system/nvidia-dcgm.service
systemctl enable --now nvidia-dcgm
until grep -q nv-hostengine /proc/[0-9]*/comm 2>/dev/null; do sleep 0.05; done
"""
JOB = "/usr/lib/nodevet-sim/nodevet-sim-load --gpus 1 --command train"


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("reset", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {one_way: 1, drain: 1}\n")
    return fleet


def break_again(fleet: SimulatedFleet, *values: str) -> None:
    """GPU 1 of h100 has a pending remap once more, and these values."""
    lines = ("gpu.1.remapping.pending = 1", "gpu.1.recovery_action = GPU_RESET", *values)
    text = "".join(f"{line}\\n" for line in lines)
    fleet.run_on("h100", f"sed -i '/reset = /d' {STATE}; printf '{text}' >>{STATE}")


def wrong(fleet: SimulatedFleet, node: str) -> set[str]:
    (host,) = fleet.vetted(*fleet.reach, "--limit", node).values()
    return {each["check"] for each in host["findings"] if each["verdict"] in ("fail", "unknown")}


def planned(fleet: SimulatedFleet, node: str, *words: object) -> tuple[Path, str]:
    """An approved plan, and what it and the approval say."""
    plan = fleet.project / f"{node}-{len(list(fleet.project.iterdir()))}.json"
    done = fleet.run_in_project(
        *("plan", *fleet.reach, "--limit", node, "--author", "ann", *CARE, "-o", plan, *words)
    )
    assert done.returncode == 1, done
    approval = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert approval.returncode == 0, approval
    return plan, done.stdout + approval.stdout


def result(run: Path) -> Any:
    return json.loads((run / "result.json").read_text())["hosts"][0]


def applied(fleet: SimulatedFleet, plan: Path, *words: object) -> Any:
    done = fleet.run_in_project("apply", plan, *fleet.reach, "--run", plan.with_suffix(""), *words)
    assert done.returncode in (0, 1), done
    return result(plan.with_suffix(""))


@pytest.fixture(scope="module")
def reset(fleet: SimulatedFleet) -> Path:
    """The run of the first reset, of a node with power limits and a monitoring client."""
    fleet.run_on("h100", MONITOR)
    plan, _ = planned(fleet, "h100", "--fix", "power_limit")
    assert applied(fleet, plan)["outcome"] == "changed"
    assert wrong(fleet, "h100") == {"gpu_lost", "row_remapping"}
    disk = fleet.sim("diff", "h100", codes=(0, 1))
    plan, said = planned(fleet, "h100")
    assert "cannot be undone" in said and "one-way" in said, said
    assert "nvidia-dcgm.service: stopped before it, and started again after it" in said
    host = applied(fleet, plan)
    assert host["outcome"] == "changed", host
    assert fleet.sim("diff", "h100", codes=(0, 1)) == disk
    return plan.with_suffix("")


def test_a_reset_repairs_the_gpu_and_keeps_power_limits_and_services(
    fleet: SimulatedFleet, reset: Path
) -> None:
    assert wrong(fleet, "h100") == set()
    assert fleet.run_on("h100", POWER) == SET * 2
    units = "systemctl is-active nvidia-persistenced nvidia-dcgm nvidia-fabricmanager"
    assert fleet.run_on("h100", units) == "active\n" * 3
    again = fleet.run_in_project("plan", *fleet.reach, "--limit", "h100")
    assert again.returncode == 0, again


def test_a_rollback_says_that_a_reset_cannot_be_undone(fleet: SimulatedFleet, reset: Path) -> None:
    """Also after a reboot, which the repair outlasts."""
    fleet.sim("reboot", "h100")
    assert wrong(fleet, "h100") == set()
    done = fleet.run_in_project("rollback", reset)
    assert done.returncode == 1 and "cannot be undone" in done.stdout, done
    assert "rollback failed" not in done.stdout.lower(), done
    fleet.run_on("h100", "systemctl start nodevet-power-limit")
    assert fleet.run_on("h100", POWER) == SET * 2


def test_a_gpu_in_use_is_not_reset(fleet: SimulatedFleet, reset: Path) -> None:
    break_again(fleet)
    plan, _ = planned(fleet, "h100")
    job = fleet.run_on("h100", f"setsid {JOB} >/dev/null 2>&1 </dev/null & echo $!").strip()
    fleet.run_on("h100", f"until [ -e {STATE}.processes/{job} ]; do sleep 0.05; done")
    host = applied(fleet, plan)
    assert host["outcome"] == "refused" and "in use by train" in host["why"], host
    plan, _ = planned(fleet, "h100", "--holders", "train")  # a person errs
    host = applied(fleet, plan)
    assert host["outcome"] == "failed_and_rolled_back", host
    assert "ended with 255" in host["why"] and "something holds it open" in host["why"]
    assert (
        fleet.run_on("h100", "systemctl is-active nvidia-persistenced nvidia-dcgm")
        == "active\n" * 2
    )
    fleet.run_on("h100", f"kill {job}; while [ -e /proc/{job} ]; do sleep 0.05; done")
    assert fleet.run_on("h100", POWER) == SET * 2
    assert "gpu_lost" in wrong(fleet, "h100")


def test_a_reset_command_that_exits_0_without_effect_is_a_failure(
    fleet: SimulatedFleet, reset: Path
) -> None:
    break_again(fleet, "gpu.1.set.reset = ignored")
    plan, _ = planned(fleet, "h100", "--again")
    host = applied(fleet, plan)
    assert host["outcome"] == "failed_and_rolled_back", host
    assert "next: reboot the node" in host["why"], host
    assert fleet.run_on("h100", POWER) == SET * 2


def test_a_step_that_fails_after_its_reset_leaves_nothing_to_restore(
    fleet: SimulatedFleet, reset: Path
) -> None:
    fleet.run_on("h100", "systemctl stop nodevet-power-limit")
    break_again(fleet, "gpu.1.set.power_limit_mw = NVML_ERROR_UNKNOWN")
    plan, _ = planned(fleet, "h100", "--again")
    host = applied(fleet, plan)
    assert host["outcome"] == "failed_and_rolled_back", host
    assert host["why"].startswith("start nodevet-power-limit.service: ended with 1"), host
    assert "; next: reboot the node" in host["why"], host
    assert "gpu_lost" not in wrong(fleet, "h100")  # it was reset
    fleet.run_on("h100", f"sed -i '/power_limit_mw = NVML/d' {STATE}")
    fleet.run_on("h100", "systemctl reset-failed; systemctl start nodevet-power-limit")
    assert fleet.run_on("h100", POWER) == SET * 2


@pytest.mark.parametrize("killed_at", ["stop nvidia-persistenced.service", "reset "])
def test_a_run_killed_before_or_during_the_reset_can_be_resumed(
    fleet: SimulatedFleet, reset: Path, killed_at: str
) -> None:
    """Whether it was killed before the reset, or while it went on."""
    break_again(fleet, "gpu.1.call.nodevet_sim_reset = delay:2000")
    plan, _ = planned(fleet, "h100", "--again")
    (step,) = json.loads(plan.read_text())["steps"]
    number = next(n for n, each in enumerate(step["actions"]) if killed_at in label(each))
    run = plan.with_suffix("")
    words = ["apply", plan, *fleet.reach, "--run", run, "--project", fleet.project]
    fleet.kill_when(lambda: has_begun(run, number), *words)
    done = fleet.run_in_project("apply", "--resume", run, "-b", "base", "--deadline", "150")
    assert done.returncode == 0, done
    assert result(run)["outcome"] in ("changed", "unchanged"), result(run)
    assert wrong(fleet, "h100") == set()
    assert fleet.run_on("h100", POWER) == SET * 2
    assert fleet.run_on("h100", "systemctl is-active nvidia-persistenced") == "active\n"


def label(action: dict[str, Any]) -> str:
    verb = {"reset_gpu": "reset ", "unit": "start " if action.get("running") else "stop "}
    return verb.get(action["do"], "") + str(action.get("name", ""))


def has_begun(run: Path, number: int) -> bool:
    journal = run / "journal.jsonl"
    text = journal.read_text() if journal.exists() else ""
    rows = [json.loads(row) for row in text.splitlines() if row.endswith("}")]
    return any(row.get("action") == number and "begin" in json.dumps(row) for row in rows)


def test_a_reset_that_does_not_help_suggests_a_reboot(fleet: SimulatedFleet) -> None:
    plan, _ = planned(fleet, "bad")
    host = applied(fleet, plan)
    assert host["outcome"] == "failed_and_rolled_back", host
    assert "NVML_ERROR_RESET_REQUIRED, expected usable; next: reboot the node" in host["why"], host
    assert fleet.run_on("bad", "systemctl is-active nvidia-persistenced") == "active\n"
    fleet.sim("reboot", "bad")
    assert "gpu_lost" not in wrong(fleet, "bad")


def test_gpus_of_ampere_are_reset_alone_while_the_fabric_manager_runs(
    fleet: SimulatedFleet,
) -> None:
    """Without it nvidia-smi refuses that, and one command resets them all."""
    uuids = fleet.run_on("a100", "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    plan, _ = planned(fleet, "a100")
    assert [each["uuid"] for each in resets(plan)] == uuids[:1]
    assert applied(fleet, plan)["outcome"] == "changed"
    again = "gpu.0.recovery_action = DRAIN_AND_RESET"
    fleet.run_on("a100", f"systemctl stop nvidia-fabricmanager; echo '{again}' >>{STATE}")
    one = "nvidia-smi -pm 0 >/dev/null; nvidia-smi --gpu-reset -i 0"
    assert "cannot be reset alone" in fleet.run_on("a100", one, check=False)
    plan, said = planned(fleet, "a100")
    assert [each["others"] for each in resets(plan)] == [uuids[1:]]
    assert "also resets GPU 1" in said
    assert applied(fleet, plan)["outcome"] == "changed"
    assert "gpu_lost" not in wrong(fleet, "a100")


def resets(plan: Path) -> list[dict[str, Any]]:
    (step,) = json.loads(plan.read_text())["steps"]
    return [each for each in step["actions"] if each["do"] == "reset_gpu"]
