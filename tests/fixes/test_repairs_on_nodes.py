"""Repairs that a reset of the GPU does, and processes that a job left: wrong, planned, approved as
what cannot be undone, done, still so after a reboot, and not rolled back."""

import json
from typing import Any

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1200)
SCENARIO = """\
sim: 1
nodes:
  retired-pages:
    gpus: {profile: t4, count: 2}
    sockets: 1
    cores: 1
    faults: [{pages-pending: {gpu: 1}}]
  gpu-repair:
    gpus: {profile: b200, count: 2}
    sockets: 1
    cores: 1
    faults: [{repair-pending: {gpu: 1}}]
  leftover-processes: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1}
"""
CHECKS = ("retired_pages", "gpu_repair", "leftover_processes")
BASELINE = """\
nodevet: 1
expect: {retired_pages: {}, gpu_repair: {}, leftover_processes: {}, gpu_lost: {}}
fix: [retired_pages, gpu_repair, leftover_processes]
"""
NEEDS = {
    "retired_pages": "gpu_reset",
    "gpu_repair": "gpu_reset",
    "leftover_processes": "drain_fix",
}
CARE = ("--drain-hook", "true", "--settle", "0.2", "--author", "ann")
LEFT = """\
setsid /usr/lib/nodevet-sim/nodevet-sim-load --gpus 0 --memory-mb 64 --command python --uid 1000 \
</dev/null >/dev/null 2>&1 &
pid=$!; until [ -e /run/nodevet-sim/nvml.state.processes/$pid ]; do sleep 0.05; done; echo $pid
"""


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("repairs", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    approvals = "nodevet: 1\napprovals: {one_way: 1, drain: 1, idle: 1}\n"
    (fleet.project / "approval.yaml").write_text(approvals)
    return fleet


def wrong(fleet: SimulatedFleet, host: str) -> dict[str, str]:
    """The checks that fail, and the action that each needs."""
    findings = fleet.vetted(*fleet.reach, "--limit", host)[host]["findings"]
    return {
        each["check"]: each.get("action", "")
        for each in findings
        if each["verdict"] in ("fail", "unknown")
    }


@pytest.mark.parametrize("check", CHECKS)
def test_a_repair_is_done_once_and_cannot_be_undone(fleet: SimulatedFleet, check: str) -> None:
    host = check.replace("_", "-")
    plan, run = fleet.project / f"{check}.json", fleet.project / check
    process = fleet.run_on(host, LEFT).strip() if check == "leftover_processes" else ""
    assert wrong(fleet, host) == {check: NEEDS[check]}
    disk = fleet.sim("diff", host, codes=(0, 1))
    done = fleet.run_in_project("plan", *fleet.reach, "--limit", host, *CARE, "-o", plan)
    assert done.returncode == 1 and "cannot be undone" in done.stdout, done
    done = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert done.returncode == 0 and "one-way" in done.stdout, done
    done = fleet.run_in_project("apply", plan, *fleet.reach, "--run", run)
    assert done.returncode == 0 and "undo it" not in done.stderr, done.stdout
    result: dict[str, Any] = json.loads((run / "result.json").read_text())["hosts"][0]
    assert result["outcome"] == "changed", result
    assert wrong(fleet, host) == {}
    if process:
        assert fleet.run_on(host, f"ls /proc/{process}", check=False) == ""
    fleet.sim("reboot", host)
    assert wrong(fleet, host) == {}
    assert fleet.run_in_project("plan", *fleet.reach, "--limit", host).returncode == 0
    done = fleet.run_in_project("rollback", run)
    assert done.returncode == 1 and "cannot be undone" in done.stdout, done
    assert wrong(fleet, host) == {} and fleet.sim("diff", host, codes=(0, 1)) == disk
