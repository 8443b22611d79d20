"""What must hold before a step may write."""

import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from slow_machine import slowness

from nodevet.evidence.document import Evidence, decode
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.clearance import Clearance, RefusedError
from nodevet.fix.rollout.drain_hook import DrainHook
from nodevet.fixing.model import Risk
from nodevet.model.baseline import Baseline
from nodevet.resource.running_process import EndProcess

PLANNED = PlannedNode(machine_id="m", boot_id="b", baseline="base")


def evidence(**sections: Any) -> Evidence:
    whole = {
        name: data if "status" in data else {"status": "ok", "data": data}
        for name, data in sections.items()
    }
    return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole}))


def test_the_node_of_the_plan_is_accepted() -> None:
    assert not preconditions.node_mismatch(
        PLANNED, evidence(host={"machine_id": "m", "boot_id": "b"})
    )


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({"machine_id": "x", "boot_id": "b"}, "another node under the same name"),
        ({"machine_id": "m", "boot_id": "c"}, "rebooted since"),
        ({"machine_id": "m", "errors": {"boot_id": "EACCES"}}, "boot_id: EACCES"),
        ({"boot_id": "b"}, "machine_id"),
        ({"status": "error", "why": "broken"}, "cannot identify the node: broken"),
    ],
)
def test_a_changed_rebooted_or_unidentified_node_is_refused(
    host: dict[str, Any], told: str
) -> None:
    assert told in preconditions.node_mismatch(PLANNED, evidence(host=host))


def test_a_reboot_by_nodevet_itself_is_accepted() -> None:
    found = evidence(host={"machine_id": "m", "boot_id": "c"})
    assert not preconditions.node_mismatch(PLANNED, found, booted="c")
    assert preconditions.node_mismatch(PLANNED, found, booted="d")


def test_only_the_baseline_of_the_plan_is_accepted() -> None:
    plan = Plan(
        id="p", author="a", created="", expires="", baselines={"base": "1"}, nodes={}, steps=()
    )
    same = Baseline(name="base", path="", sha256="1")
    assert not preconditions.baseline_mismatch(plan, PLANNED, same)
    assert "not found" in preconditions.baseline_mismatch(plan, PLANNED, None)
    changed = msgspec.structs.replace(same, sha256="2")
    assert "changed since" in preconditions.baseline_mismatch(plan, PLANNED, changed)


def gpu(index: int, **rest: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "minor_number": index, "processes": [], **rest}


TWO = {"gpus": [gpu(0), gpu(1)]}
NONE = {"processes": [], "complete": True}


def users(uuids: tuple[str, ...], *, nvml: bool = True, **sections: Any) -> list[str]:
    sections = {"gpu": TWO, "processes": NONE, **sections}
    return list(preconditions.users(evidence(**sections), uuids, nvml=nvml))


def test_a_node_without_gpu_processes_is_free() -> None:
    assert users(()) == users(("GPU-0",)) == []


def test_processes_on_a_gpu_are_found_by_open_files_and_by_nvml() -> None:
    held = {"processes": [{"pid": 7, "command": "job", "gpu_minors": [1]}], "complete": True}
    assert users(("GPU-1",), processes=held) == ["GPU 1 in use by job (pid 7)"]
    assert users(("GPU-0",), processes=held) == []
    named = {"gpus": [gpu(0, processes=[{"pid": 9}]), gpu(1)]}
    assert users(("GPU-0",), gpu=named) == ["GPU 0 in use by pid 9, which /proc does not show"]
    assert users(("GPU-1",), gpu=named) == []


def test_a_gpu_whose_processes_are_unknown_is_not_free() -> None:
    assert "for sure" in users((), processes={"processes": [], "complete": False})[0]
    assert "for sure" in users((), processes={"processes": []})[0]
    assert "denied" in users((), processes={"status": "denied", "why": "denied"})[0]
    unread = {"gpus": [gpu(0, processes=None, errors={"processes": "NVML_ERROR_UNKNOWN"})]}
    assert "NVML_ERROR_UNKNOWN" in users((), gpu=unread)[0]
    assert "no NVML" in users((), gpu={"status": "absent", "why": "no NVML"})[0]
    assert users((), nvml=False, gpu={"status": "absent", "why": "no NVML"}) == []
    assert users(("GPU-9",)) == ["NVML does not list GPU-9"]
    blind = {"processes": [{"pid": 7, "command": "job"}], "complete": True}
    assert users(("GPU-0",), processes=blind) == ["a GPU in use by job (pid 7)"]


def script(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_hook_gets_the_host_as_a_separate_argument(tmp_path: Path) -> None:
    hook = script(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/told')
    assert not DrainHook(f"{hook} --now", "gpu 1; rm -rf /", 60).drain()
    assert (tmp_path / "told").read_text() == "--now\ngpu 1; rm -rf /\n"


def test_a_hook_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    hook = script(tmp_path, "echo two jobs run; exit 4")
    assert (
        DrainHook(hook, "gpu1", 60).drain()
        == "not drained: the drain hook ended with 4: two jobs run"
    )


def test_a_hook_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    assert "cannot be run" in DrainHook("/no/such/hook", "gpu1", 60).drain()
    assert "cannot be run" in DrainHook("'", "gpu1", 60).drain()


def test_a_hook_that_times_out_is_killed_with_its_children(tmp_path: Path) -> None:
    hook = script(tmp_path, f"sleep 9876 & echo $! >{tmp_path}/pid; sleep 9876")
    limit = math.ceil(slowness())
    assert f"killed after {limit} s (--drain-timeout)" in DrainHook(hook, "gpu1", limit).drain()
    pid = int((tmp_path / "pid").read_text())
    limit = time.monotonic() + 120
    while alive(pid):
        assert time.monotonic() < limit
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text() and os.kill(pid, 0) is None
    except (OSError, ProcessLookupError):
        return False


def idle_step(name: str, *actions: Any) -> Step:
    return Step(
        id=f"n1/{name}/1", host="n1", fix=name, subjects=(), expected=1, actual=0, risk=Risk.IDLE,
        actions=actions, resources=(), gpus=("GPU-0",), reason="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("started_s", "ends_first", "told"),
    [
        (12.5, True, ""),
        (12.5, False, "n1/mode/1 is of risk idle: GPU 0 in use by job (pid 7)"),
        (13.0, True, "n1/left/1 is of risk idle: GPU 0 in use by job (pid 7)"),
    ],
)
def test_a_process_that_an_earlier_step_ends_does_not_hinder(
    started_s: float, ends_first: bool, told: str
) -> None:
    """It is that very process: by its pid and by its start."""
    process = {"pid": 7, "command": "job", "gpu_minors": [0], "started_s": 12.5}
    found = evidence(gpu=TWO, processes={"processes": [process], "complete": True})
    ends = idle_step("left", EndProcess(pid=7, started_s=started_s, uid=1000, name="job"))
    steps = [ends, idle_step("mode")] if ends_first else [idle_step("mode"), ends]
    clearance = Clearance(host="n1", planned=PLANNED, drain_hook=None, closed=lambda reboot: "")
    if not told:
        assert clearance.node(found, lambda: found, steps=steps, reboot=False) is found
        return
    with pytest.raises(RefusedError) as caught:
        clearance.node(found, lambda: found, steps=steps, reboot=False)
    assert str(caught.value) == told
