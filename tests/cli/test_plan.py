"""`nodevet plan` as a user runs it, over real SSH to one simulated node."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fix.plan import plan_file
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
Run = Callable[..., subprocess.CompletedProcess[str]]
SCENARIO = """\
sim: 1
nodes:
  gpu1:
    gpus: {profile: h100-sxm, count: 2}
    cores: 2
    governor: powersave
    nvml: {"gpu.1.power_limit_mw": "500000"}
"""
BASELINE = """\
nodevet: 1
title: Two GPUs
expect: {power_limit: 700, cpu_governor: performance, compute_mode: DEFAULT, gpu_count: 8}
fix: [power_limit, compute_mode]
"""
GOVERNORS = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    """One node: a GPU is capped, the governor is slow."""
    return boot("plan", SCENARIO)


@pytest.fixture
def on(fleet: SimulatedFleet) -> Callable[[str], str]:
    return lambda command: fleet.run_on("gpu1", command)


@pytest.fixture
def plan(fleet: SimulatedFleet, nodevet: Run, tmp_path: Path) -> Run:
    (tmp_path / "two.yaml").write_text(BASELINE)
    site = ["-i", fleet.place.inventory, "-b", tmp_path / "two.yaml", "--author", "alice"]
    return lambda *options: nodevet("plan", *site, *options, cwd=tmp_path)


def test_plan_writes_a_step_for_each_failure_with_an_allowed_fix(
    plan: Run, on: Callable[[str], str], tmp_path: Path
) -> None:
    before = on("nvidia-smi --query-gpu=power.limit --format=csv; find /etc -newer /etc/machine-id")
    done = plan("-o", "plan.json", "--valid", "90m")
    assert done.returncode == 1, done.stderr
    assert "set power_limit  500 W → 700 W  gpu1 GPU 1  risk live" in done.stdout
    assert "1 step on 1 host · risk live · by alice" in done.stdout
    assert "gpu_count" in done.stdout.split("No fix available:")[1]
    assert "--fix cpu_governor" in done.stdout
    inventory = done.args[done.args.index("-i") + 1]
    apply = f"nodevet apply plan.json -i {inventory} -b {tmp_path / 'two.yaml'}\n"
    assert f"plan.json is written; next: nodevet approve plan.json, then {apply}" in done.stderr
    file = tmp_path / "plan.json"
    made = plan_file.read(file.read_bytes())
    (step,) = made.steps
    assert (step.id, step.subjects, step.expected) == ("gpu1/power_limit/1", ("GPU 1",), 700)
    assert step.reason == "GPU 1: 500 W, expected 700 W (two.yaml:3)"
    assert made.nodes["gpu1"].boot_id == on("cat /proc/sys/kernel/random/boot_id").strip()
    assert {seen.resource for seen in step.before} == set(step.resources)
    power = next(seen for seen in step.before if seen.resource.name.endswith(":power_limit_mw"))
    assert power.value == 500000
    assert before == on(
        "nvidia-smi --query-gpu=power.limit --format=csv; find /etc -newer /etc/machine-id"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "two.yaml"]


def test_a_diff_shows_the_files_and_the_commands(plan: Run) -> None:
    shown = plan("--format", "diff").stdout
    for line in (
        "# power_limit on gpu1 (two)",
        "-power_limit GPU 1: 500 W",
        "+power_limit GPU 1: 700 W",
        "--- /dev/null",
        "+++ /etc/systemd/system/nodevet-power-limit.service",
        "+[Service]",
        "-nodevet-power-limit.service: (absent)",
        "+nodevet-power-limit.service: enabled",
    ):
        assert line in shown.splitlines()
    assert "\n$ nvidia-smi -i GPU-" in shown and " -pl 700\n" in shown


def test_full_format_shows_each_host_separately(plan: Run) -> None:
    shown = plan("--format", "full").stdout.splitlines()
    assert shown[0] == "# gpu1 (two)"
    assert "## power_limit GPU 1: risk live" in shown


def test_plan_names_fixes_that_are_not_allowed_and_how_to_allow_them(
    plan: Run, nodevet: Run, fleet: SimulatedFleet, tmp_path: Path
) -> None:
    (tmp_path / "none.yaml").write_text(BASELINE.partition("fix:")[0])
    done = nodevet("plan", "-i", fleet.place.inventory, "-b", "none.yaml", cwd=tmp_path)
    assert done.returncode == 0
    assert "--fix power_limit" in done.stdout
    assert (
        "to plan cpu_governor, power_limit: add to `fix` in none.yaml, "
        "or plan once with --fix cpu_governor --fix power_limit\n"
    ) in done.stderr
    assert "what to do by hand: nodevet explain gpu_count\n" in done.stderr
    allowed = plan()
    assert "nothing is written; to approve and apply it, plan with -o" in allowed.stderr


def test_colour_and_width(plan: Run) -> None:
    colour = plan("--color", "always").stdout
    assert "\x1b[1mNo fix available:\x1b[0m\n" in colour
    assert "\x1b" not in plan().stdout


def test_a_fix_that_is_named_is_the_only_one(plan: Run) -> None:
    done = plan("--fix", "cpu_governor", "--format", "diff")
    assert done.returncode == 1
    assert "-cpu_governor cpufreq 0-7: powersave\n+cpu_governor cpufreq 0-7: performance" in (
        done.stdout
    )
    assert "+++ /etc/tmpfiles.d/nodevet-cpu-governor.conf" in done.stdout
    assert "--fix power_limit" in done.stdout


def test_plan_without_steps_keeps_the_old_plan_file(plan: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("old")
    done = plan("--fix", "compute_mode", "-o", "plan.json")
    assert done.returncode == 0
    assert "Nothing to do: no fix for the failures is allowed." in done.stderr
    assert "contains an earlier plan and was not changed" in done.stderr
    assert (tmp_path / "plan.json").read_text() == "old"


def test_plan_warns_if_the_author_is_unknown_and_may_not_approve(plan: Run, tmp_path: Path) -> None:
    """Before the plan goes to those who cannot approve it."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True
    )
    key = (tmp_path / "k.pub").read_text()
    (tmp_path / "allowed_signers").write_text(f"bob {key}")
    said = "cannot be approved as it is: the author, alice, is not in "
    assert said not in plan("-o", "plan.json").stderr
    (tmp_path / "approval.yaml").write_text("nodevet: 1\nauthor_approves: false\n")
    done = plan("-o", "plan.json")
    assert done.returncode == 1 and said in done.stderr, done
    (tmp_path / "allowed_signers").write_text(f"bob,alice {key}")
    assert "cannot be approved" not in plan("-o", "plan.json").stderr
    (tmp_path / "allowed_signers").write_text("")
    assert "cannot be approved as it is: allowed_signers: names no one" in plan().stderr


def test_a_setting_with_another_owner_is_not_planned(plan: Run, on: Callable[[str], str]) -> None:
    on(f"echo 'w {GOVERNORS} - - - - powersave' >/etc/tmpfiles.d/site.conf")
    try:
        done = plan("--fix", "cpu_governor", "-o", "plan.json")
    finally:
        on("rm /etc/tmpfiles.d/site.conf")
    assert done.returncode == 3
    told = done.stdout.split("Not planned:")[1]
    assert "cpu_governor" in told
    assert "is also managed by" in told
    assert "/etc/tmpfiles.d/site.conf" in told


def test_a_host_that_is_not_reached_is_listed_and_the_others_are_planned(
    plan: Run, fleet: SimulatedFleet, nodevet: Run, tmp_path: Path
) -> None:
    nodes = fleet.place.inventory.read_text() + "  gone1: {address: 127.0.0.1, port: 1}\n"
    (tmp_path / "nodes.yaml").write_text(nodes)
    site = ["-i", "nodes.yaml", "-b", "two.yaml", "--author", "alice", "-o", "plan.json"]
    both = nodevet("plan", *site, cwd=tmp_path)
    assert both.returncode == 1
    assert "gone1" in both.stdout.split("Not checked, so not planned:")[1]
    assert list(json.loads((tmp_path / "plan.json").read_text())["nodes"]) == ["gpu1"]
    alone = nodevet("plan", "gone1", *site, cwd=tmp_path)
    assert alone.returncode == 3
    assert "not everything could be judged or planned" in alone.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fix", "gpu_count"], "no fix is named 'gpu_count'"),
        (["--fix", "power_limits"], "did you mean power_limit?"),
        (["--valid", "forever"], "invalid duration 'forever' (examples: 90s, 15m, 24h, 2d)"),
        (["--valid", "0h"], "0h is less than 1m"),
        (["--valid", "31d"], "31d is more than 30d"),
        (["--max-risk", "high"], "'high' is not one of"),
        (["-o", "none/plan.json"], "the folder none does not exist"),
        (["-o", "two.yaml"], "two.yaml: this is a baseline; name another file"),
        (["--format", "html"], "'html' is not one of"),
    ],
)
def test_wrong_usage(nodevet: Run, tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "two.yaml").write_text(BASELINE)
    done = nodevet("plan", "gpu1", "-b", "two.yaml", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_fixes_are_listed_and_explained(nodevet: Run) -> None:
    listed = nodevet("list", "fixes").stdout
    assert "power_limit " in listed and "secure_boot" not in listed
    explained = nodevet("explain", "power_limit").stdout
    assert "Fix available, at risk live or below." in explained
    assert "**Rollback** restores" in explained
    assert "No fix available." in nodevet("explain", "secure_boot").stdout
