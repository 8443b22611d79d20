"""The life of a reset on simulated nodes: planned, approved as what cannot be undone, applied,
proven, still so after a reboot, and not rolled back. And what goes wrong."""

import json
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
    faults: [{row-remap-pending: {gpu: 0, cleared_by: reboot}}]
"""
BASELINE = """\
nodevet: 1
title: no GPU needs a reset
expect: {row_remapping: {}, power_limit: 500, persistence_mode: true}
fix: [row_remapping, power_limit]
"""
POWER = "nvidia-smi --query-gpu=power.limit,persistence_mode --format=csv,noheader"
CARE = ("--drain-hook", "true", "--settle", "0.2", "--boot-settle", "1")


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("reset", SCENARIO, BASELINE)
    fleet.people("ann", "bob", "eve")
    return fleet


def verdicts(fleet: SimulatedFleet, node: str, check: str) -> list[str]:
    (host,) = fleet.vetted(*fleet.reach, "--limit", node).values()
    return [each["verdict"] for each in host["findings"] if each["check"] == check]


def planned(fleet: SimulatedFleet, node: str, fix: str, *words: object) -> Any:
    plan = fleet.project / f"{node}-{fix}.json"
    done = fleet.at(
        *("plan", *fleet.reach, "--limit", node, "--fix", fix, "--author", "ann", *CARE),
        *("-o", plan, *words),
    )
    assert done.returncode == 1, done
    return plan


def approved(fleet: SimulatedFleet, plan: Any) -> str:
    for name in ("bob", "eve"):
        done = fleet.at("approve", plan, "--key", fleet.project / name, "--yes")
        assert done.returncode == 0, done
    return done.stdout + done.stderr


def applied(fleet: SimulatedFleet, plan: Any, run: str) -> Any:
    fleet.at("apply", plan, *fleet.reach, "--run", fleet.project / run)
    result = json.loads((fleet.project / run / "result.json").read_text())
    return result["hosts"][0]


def test_a_reset_from_plan_to_rollback(fleet: SimulatedFleet) -> None:
    plan = planned(fleet, "h100", "power_limit")
    approved(fleet, plan)
    assert applied(fleet, plan, "power")["outcome"] == "changed"
    assert verdicts(fleet, "h100", "row_remapping") == ["ok", "fail"]
    disk = fleet.sim("diff", "h100", codes=(0, 1))
    plan = planned(fleet, "h100", "row_remapping")
    shown = approved(fleet, plan)
    assert "cannot be undone" in shown and "one-way" in shown, shown
    host = applied(fleet, plan, "run")
    assert host["outcome"] == "changed", host
    settings = "500.00 W, Enabled\n" * 2
    assert fleet.on("h100", POWER) == settings
    assert verdicts(fleet, "h100", "row_remapping") == ["ok", "ok"]
    assert fleet.sim("diff", "h100", codes=(0, 1)) == disk
    again = fleet.at("plan", *fleet.reach, "--limit", "h100")
    assert again.returncode == 0, again
    fleet.sim("reboot", "h100")
    assert verdicts(fleet, "h100", "row_remapping") == ["ok", "ok"]
    done = fleet.at("rollback", fleet.project / "run")
    assert done.returncode == 1 and "cannot be undone" in done.stdout, done
    assert "rollback failed" not in done.stdout.lower(), done
    assert fleet.on("h100", POWER) == settings


def test_a_reset_that_does_not_help_names_what_is_next(fleet: SimulatedFleet) -> None:
    plan = planned(fleet, "bad", "row_remapping")
    approved(fleet, plan)
    host = applied(fleet, plan, "bad-run")
    assert host["outcome"] == "failed_and_rolled_back", host
    assert "the reset did not help: reboot the node; if that does not help, power it" in host["why"]
    assert fleet.on("bad", POWER) == "700.00 W, Enabled\n"
    assert fleet.on("bad", "systemctl is-active nvidia-persistenced") == "active\n"
