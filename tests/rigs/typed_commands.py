"""A person at a fleet with BMCs (two_bmcs), who types the commands that the reports name."""

import json
import shlex
from pathlib import Path

from simulated_fleet import Done, SimulatedFleet

CARE = "--author ann --settle 0.2s --boot-settle 1s --canary 0 --max-fail 2"
FAILED = "failed_and_rolled_back"


def reach(fleet: SimulatedFleet) -> str:
    return f"-i {fleet.place.inventory} -i bmcs.yaml -b base"


def type_(fleet: SimulatedFleet, line: str, code: int) -> Done:
    program, *words = shlex.split(line)
    assert program == "nodevet"
    done = fleet.nodevet(*words)
    assert done.returncode == code, done
    return done


def newest_run(fleet: SimulatedFleet) -> Path:
    return max((fleet.project / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def outcomes(fleet: SimulatedFleet) -> dict[str, str]:
    """The outcome of each host of the newest run."""
    hosts = json.loads((newest_run(fleet) / "result.json").read_bytes())["hosts"]
    return {host["host"]: host["outcome"] for host in hosts}


def plan_of(fleet: SimulatedFleet, plan: str, care: str = CARE) -> str:
    """What the command says that makes this plan, which bob approves."""
    (fleet.project / "plan.json").unlink(missing_ok=True)
    said = type_(fleet, f"{plan} {care} -o plan.json --deadline 150", 1).stdout
    type_(fleet, "nodevet approve plan.json --key bob --yes", 0)
    return said


def apply_plan(fleet: SimulatedFleet, code: int) -> tuple[dict[str, str], Done]:
    """The outcome of each host, and what the command says."""
    done = type_(fleet, f"nodevet apply plan.json {reach(fleet)} --deadline 150", code)
    return outcomes(fleet), done


def carry_out(
    fleet: SimulatedFleet, plan: str, code: int, care: str = CARE
) -> tuple[dict[str, str], str]:
    """The plan that this command makes, approved and applied: the outcome of each host, and what
    the report says."""
    plan_of(fleet, plan, care)
    hosts, done = apply_plan(fleet, code)
    return hosts, done.stdout


def next_command(said: str, word: str) -> str:
    """The command after `next:` that has this word."""
    lines = [line for line in said.splitlines() if line.startswith("next: ") and word in line]
    assert len(lines) == 1, said
    return lines[0][lines[0].index("nodevet ") :].removesuffix(" -o plan.json")


def drained(fleet: SimulatedFleet) -> set[str]:
    """The hosts that the hook of two_bmcs drained, and has not given back."""
    return {path.name.removeprefix("drained-") for path in fleet.project.glob("drained-*")}
