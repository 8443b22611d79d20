"""Monitoring clients that hold the GPUs: stopped and started around the step that needs it, or
said to be harmless; no other use of a GPU passes for one."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix import model
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.candidates import Rules
from nodevet.fix.plan.render import View
from nodevet.fix.plan_sheet import plan_blocks
from nodevet.fix.settings import Rollout
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome, Refusal
from nodevet.fleet.protocol.framing import ActResult
from nodevet.resource import Resource, RunCommand, State
from nodevet.resource.unit import SetUnit
from nodevet.sheet import terminal
from nodevet.sheet.model import Sheet
from planned_fleet import proposal_of

World = Any
DCGM = "nvidia-dcgm.service"
MODES = {"0": "DEFAULT", "3": "EXCLUSIVE_PROCESS"}  # as a fix says them, and as undoing does
NOW = datetime(2026, 11, 20, 22, 0, tzinfo=timezone.utc)


def watched(model: type) -> type:
    """A node of the model whose DCGM holds the GPUs while its service runs; a change of their mode
    fails as long as anything does."""

    class Watched(model):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.modes = ["DEFAULT", "DEFAULT"]
            self.unit, self.command, self.computes = DCGM, "nv-hostengine", False
            self.others: list[dict[str, Any]] = []
            self.files[f"/etc/systemd/system/{DCGM}"] = ("[Service]\n", 0o644)
            self.units[DCGM] = {
                "enabled": "enabled",
                "active": "active",
                "masked": False,
                "fragment": "",
            }

        @property
        def watching(self) -> bool:
            return bool(self.units.get(DCGM, {}).get("active") == "active")

        def everything(self) -> Any:
            return super().everything(), list(self.modes)

        def evidence(self) -> bytes:
            document = json.loads(super().evidence())
            sections = document["sections"]
            for mode, gpu in zip(self.modes, sections["gpu"]["data"]["gpus"], strict=True):
                gpu["compute_mode"] = mode
                gpu["persistence_mode"] = True
                gpu["processes"] = [{"pid": 50}] if self.computes else []
            held = {
                "pid": 50,
                "command": self.command,
                "unit": self.unit,
                "cgroup": f"/system.slice/{self.unit}",
                "gpu_minors": [0, 1],
            }
            there = [*([held] if self.watching else []), *self.others]
            sections["processes"]["data"]["processes"] = there
            return json.dumps(document).encode()

        def look(self, resource: Resource) -> State:
            if resource.kind == "gpu" and resource.name.endswith(":compute_mode"):
                return State(
                    resource=resource, exists=True, value=self.modes[int(resource.name[11])]
                )
            found: State = super().look(resource)
            return found

        def act(self, action: Any) -> ActResult:
            words = action.words if isinstance(action, RunCommand) else ()
            if words[:1] == ("nvidia-smi",) and words[3] == "-c":
                if self.watching:
                    return ActResult(ok=False, code=15, output="In use by another client")
                self.modes[int(words[2][11])] = MODES.get(words[4], words[4])
                return ActResult(ok=True, code=0, output="")
            done: ActResult = super().act(action)
            return done

    return Watched


@pytest.fixture
def node(world: Callable[..., World]) -> Callable[..., World]:
    def made(**params: Any) -> World:
        w = world(**(params or {"compute_mode": "EXCLUSIVE_PROCESS"}))
        w.boxes["n1"] = watched(type(w.boxes["n1"]))("n1")
        w.terms = replace(w.terms, drain_hook="true")
        return w

    return made


def planned(w: World, holders: str = "") -> Any:
    """What `nodevet plan` makes of the node as it is, as it comes out of the file."""
    rules = Rules(
        id="0a1b2c3d", author="ann", now=NOW, rollout=lambda nodes: Rollout(holders=holders)
    )
    proposal = proposal_of(w, rules)
    assert not proposal.plan.conflicts, proposal
    return plan_file.read(plan_file.write(proposal.plan))


def told(plan: Any) -> str:
    return "".join(
        terminal.render(Sheet(title="", kind="", blocks=tuple(plan_blocks(plan, view, {}.get))))
        for view in View
    )


def test_d22_dcgm_is_stopped_and_started_around_the_step_as_the_plan_shows(node: Any) -> None:
    w = node()
    plan, box = planned(w), w.boxes["n1"]
    (step,) = plan.steps
    assert step.holders == (DCGM,) and step.risk is Risk.IDLE
    assert step.actions[0] == SetUnit(name=DCGM, running=False)
    assert step.actions[-1] == SetUnit(name=DCGM, running=True)
    assert f"{DCGM}: stopped before it, and started again after it" in told(plan)
    before = box.everything()
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.CHANGED, result
    assert box.watching and box.modes == ["EXCLUSIVE_PROCESS"] * 2
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before and box.watching


def test_d22_dcgm_runs_again_after_a_failed_step(node: Any) -> None:
    w = node()
    plan, box = planned(w), w.boxes["n1"]
    before, act, said = box.everything(), box.act, [0]

    def failing(action: Any) -> ActResult:
        words = getattr(action, "words", ())
        if words[:1] == ("nvidia-smi",) and words[4] in MODES.values() and words[2][11] == "1":
            said[0] += 1
            return ActResult(ok=False, code=4, output="Insufficient Permissions")
        done: ActResult = act(action)
        return done

    box.act = failing
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.FAILED and "Insufficient Permissions" in result.why, result
    assert box.everything() == before and box.watching and said[0] == 1


@pytest.mark.parametrize("number", range(1, 26))
def test_d22_a_run_killed_at_any_call_is_resumed_and_dcgm_runs_again(
    world: Callable[..., World], node: Any, number: int
) -> None:
    w = node()
    plan, box, calls = planned(w), w.boxes["n1"], [0]
    before = box.everything()

    def kill(box: Any, call: str, when: str) -> None:
        calls[0] += when == "before"
        if calls[0] == number and when == "after":
            raise world.killed

    w.executor.fault = kill
    with suppress(world.killed):
        w.node(plan, w.journal())
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.CHANGED and box.watching, result
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before and box.watching


def job(box: Any) -> None:
    box.others = [{"pid": 9, "command": "job", "unit": "x.scope", "gpu_minors": [0]}]


def diagnosing(box: Any) -> None:
    box.computes = True


def impostor(box: Any) -> None:
    box.unit = "x.service"


def in_a_container(box: Any) -> None:
    box.unit = "cri-containerd-1f.scope"


@pytest.mark.parametrize("change", [job, diagnosing, impostor, in_a_container])
def test_d22_no_other_process_on_a_gpu_counts_as_monitoring(node: Any, change: Any) -> None:
    w = node()
    box = w.boxes["n1"]
    change(box)
    plan = planned(w)
    result = w.node(plan, w.journal())
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.PRECONDITION), result
    assert "in use by" in result.why and not box.writes


def test_d22_a_monitor_that_started_after_the_plan_is_not_stopped_without_approval(
    node: Any,
) -> None:
    w = node()
    box = w.boxes["n1"]
    box.units[DCGM]["active"] = "inactive"
    plan = planned(w)
    assert plan.steps[0].holders == ()
    box.units[DCGM]["active"] = "active"
    result = w.node(plan, w.journal())
    assert result.refusal is Refusal.PRECONDITION and "which the plan does not stop" in result.why
    assert not box.writes


def test_d22_reboots_and_steps_without_gpus_do_not_stop_dcgm(node: Any) -> None:
    w = node(pages={"mode": "never", "risk": "idle"})
    plan, box = planned(w), w.boxes["n1"]
    assert plan.steps[0].holders == ()
    assert f"{DCGM}: may keep the GPUs open" in told(plan)
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and box.boots == 2, result


def test_d22_holders_named_by_the_user_are_harmless_and_shown_in_the_plan(node: Any) -> None:
    w = node(pages={"mode": "never", "risk": "drain"})
    box = w.boxes["n1"]
    box.others = [{"pid": 9, "command": "nvtop", "unit": "session-1.scope", "gpu_minors": [0]}]
    plan = planned(w, "nvtop")
    assert plan.rollout.holders == "nvtop"
    assert "nvtop: harmless according to --holders" in told(plan)
    result = w.node(plan, w.journal())
    assert result.refusal is Refusal.PRECONDITION and "in use by nvtop" in result.why
    w.terms = replace(w.terms, harmless=frozenset(["nvtop"]))
    assert w.node(plan, w.journal("other")).outcome is Outcome.CHANGED


def test_d22_two_steps_may_stop_the_same_service_and_nothing_else(node: Any) -> None:
    w = node()
    plan = planned(w)
    (step,) = plan.steps
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    gpu = Resource(kind="gpu", name=f"{uuid}:ecc_pending")
    change = RunCommand(words=("nvidia-smi", "-i", uuid, "-e", "1"))
    other = replace(
        step,
        id="n1/mig_mode/1",
        fix="mig_mode",
        actions=(step.actions[0], change, step.actions[-1]),
        resources=(gpu, Resource(kind="unit", name=DCGM)),
        before=(),
    )
    both = replace(plan, steps=(step, other))
    assert plan_file.read(plan_file.write(both)) == both
    for wrong in (
        replace(other, holders=()),
        replace(other, actions=(step.actions[0],)),
        replace(
            other, actions=(*step.actions[:1], SetUnit(name=DCGM, masked=True), step.actions[-1])
        ),
    ):
        with pytest.raises(model.PlanError):
            plan_file.read(plan_file.write(replace(plan, steps=(step, wrong))))


def test_d22_a_service_that_an_admin_stopped_since_stays_stopped(node: Any) -> None:
    w = node()
    plan, box = planned(w), w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.units[DCGM]["active"] = "inactive"
    result = w.back(plan)
    assert result.outcome is Outcome.PARTIAL and f"unit {DCGM}" in result.why, result
    assert not box.watching and box.modes == ["DEFAULT"] * 2
