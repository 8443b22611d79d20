"""A new driver beside other steps of a node: from its installation to the reboot NVML is silent.

The modelled nodes of tests/rigs have packages, and a library that refuses another module.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from written_fixes import ALWAYS, ONCE, TRIAL

from nodevet.fixing.result import HostResult, Outcome
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import WorkError
from nodevet.fleet.protocol.framing import ActResult, SessionAnswer
from nodevet.resource import Resource, RunCommand, State, restore

World = Any
OLD, NEW = "550.54.14", "550.90.07"
NAMES = ("libnvidia-compute-550", "nvidia-driver-550")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
MISMATCH = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


def driven(kind: type) -> type:
    """A node of the model whose driver comes in packages."""

    class Driven(kind):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.loaded = OLD
            self.packages = {
                name: {"version": f"{OLD}-1", "held": False, "automatic": name == NAMES[0]}
                for name in NAMES
            }
            self.broken = False  # the new module does not load

        @property
        def dark(self) -> bool:
            return bool(self.packages[NAMES[0]]["version"] != f"{self.loaded}-1")

        def everything(self) -> Any:
            return super().everything(), json.dumps(self.packages)

        def reboot(self) -> None:
            super().reboot()
            version = self.packages[NAMES[0]]["version"].removesuffix("-1")
            self.loaded = "" if self.broken and version == NEW else version

        def evidence(self) -> bytes:
            document = json.loads(super().evidence())
            sections = document["sections"]
            if self.dark:
                sections["gpu"] = {"status": "error", "why": MISMATCH}
            else:
                sections["gpu"]["data"]["driver_version"] = self.loaded
            listed = [
                {"name": name, "offers": [f"{NEW}-1", f"{OLD}-1"], **package}
                for name, package in self.packages.items()
            ]
            data = {"manager": "dpkg", "packages": listed}
            sections["packages"] = {"status": "ok", "data": data}
            sections["modules"] = {"status": "ok", "data": {"nvidia_version": self.loaded}}
            return msgspec.json.encode(document)

        def look(self, resource: Resource) -> State:
            if resource.kind == "package":
                return State(
                    resource=resource, exists=True, value=dict(self.packages[resource.name])
                )
            if resource.kind == "gpu" and self.dark:
                return State(resource=resource, exists=False, why=f"NVML: {MISMATCH}")
            found: State = super().look(resource)
            return found

        def act(self, action: Any) -> ActResult:
            words = action.words if isinstance(action, RunCommand) else ()
            if "apt-get" in words:
                for word in words[words.index("install") + 1 :]:
                    name, _, version = word.partition("=")
                    self.packages[name].update(version=version, automatic=False)
            elif words[:1] == ("apt-mark",):
                field = "automatic" if words[1] == "auto" else "held"
                for name in words[2:]:
                    self.packages[name][field] = True
            elif words[3:4] == ("unhold",):
                for word in words[4:]:
                    name, _, version = word.partition("=")
                    if self.packages[name]["version"] == version:
                        self.packages[name]["held"] = False
            elif words[:1] == ("nvidia-smi",) and self.dark:
                return ActResult(ok=False, code=18, output=MISMATCH)
            elif "dpkg" not in words:
                done: ActResult = super().act(action)
                return done
            return ActResult(ok=True, code=0, output="")

    return Driven


@pytest.fixture
def node(world: Callable[..., World]) -> tuple[World, Any]:
    """A node whose pages, ECC mode and driver are wrong, and its plan."""
    w = world(pages="never", ecc_mode=True, driver_version=NEW)
    w.boxes["n1"] = driven(type(w.boxes["n1"]))("n1")
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    return w, w.plan()


def outcomes(result: HostResult) -> list[Outcome]:
    return [step.outcome for step in result.steps]


WAITING = [Outcome.CHANGED, Outcome.PENDING, Outcome.PENDING]


def test_steps_that_need_the_driver_wait_for_the_reboot_without_a_rollback(node: Any) -> None:
    w, plan = node
    box, before = w.boxes["n1"], w.boxes["n1"].everything()
    result = w.node(plan, w.journal())
    assert outcomes(result) == WAITING, result
    assert box.dark and all(each["held"] for each in box.packages.values())
    assert outcomes(w.node(plan, w.journal(), resume=True)) == WAITING
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before and not box.dark


def test_a_reboot_verifies_every_step_and_a_rollback_restores_the_driver_last(node: Any) -> None:
    w, plan = node
    box, before = w.boxes["n1"], w.boxes["n1"].everything()
    result = w.node(plan, w.journal(), reboot=True)
    assert outcomes(result) == [Outcome.VERIFIED_AFTER_REBOOT] * 3, result
    assert box.loaded == NEW and not box.dark
    result = w.back(plan)
    assert result.outcome is Outcome.PENDING, result
    assert "effective after a reboot" in result.why
    assert box.dark
    box.reboot()
    assert box.everything() == before and box.loaded == OLD


def test_a_driver_that_does_not_load_after_the_reboot_is_reverted(node: Any) -> None:
    w, plan = node
    w.boxes["n1"].broken = True
    result = w.node(plan, w.journal(), reboot=True)
    assert outcomes(result)[2] is Outcome.FAILED, result
    assert "not persistent across reboot" in result.steps[2].why
    assert all(each["version"] == f"{OLD}-1" for each in w.boxes["n1"].packages.values())


def test_a_restored_driver_is_effective_after_one_more_reboot(node: Any) -> None:
    w, plan = node
    box, before = w.boxes["n1"], w.boxes["n1"].everything()
    box.broken = True
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED and "rebooted once more" in result.why, result
    assert box.boots == 3 and not box.dark and box.loaded == OLD
    assert [each.outcome.good for each in result.steps[:2]] == [True, True], result
    assert w.back(plan).outcome is Outcome.PENDING, "ECC is on until the next reboot"
    box.reboot()
    assert box.everything() == before


@pytest.fixture
def trial(world: Callable[..., World]) -> tuple[World, Any]:
    """A node whose pages, which one boot tries, and driver are wrong, and its plan."""
    w = world(pages="never", driver_version=NEW)
    (w.folder / "fixes" / "pages.py").write_text(TRIAL)
    w.catalog = type(w.catalog)([w.folder / "checks"], [w.folder / "fixes"])
    w.boxes["n1"] = box = driven(type(w.boxes["n1"]))("n1")
    boot, boots = box.reboot, []

    def once() -> None:
        """The file of one boot counts at the first boot after it was written."""
        files, is_new = box.files, ONCE in box.files and not boots
        if ONCE in files:
            boots.append(is_new)
        box.files = {path: text for path, text in files.items() if is_new or path != ONCE}
        boot()
        box.files = files

    box.reboot = once
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true", reboot=True)
    return w, w.plan()


def test_a_setting_tried_for_one_boot_is_kept_before_the_reboot_without_the_driver(
    trial: Any,
) -> None:
    """The extra reboot takes the default entry of GRUB, which must have the new line by then."""
    w, plan = trial
    box = w.boxes["n1"]
    box.broken = True
    result = w.node(plan, w.journal(), reboot=True)
    assert outcomes(result) == [Outcome.VERIFIED_AFTER_REBOOT, Outcome.FAILED], result
    assert "rebooted once more" in result.steps[1].why and box.boots == 3
    assert ALWAYS in box.files and ONCE not in box.files
    assert box.kernel[THP] == "never" and box.loaded == OLD
    assert [ran.action.label for ran in result.steps[0].ran] == [
        *(f"write {ONCE}", f"remove {ONCE}", f"write {ALWAYS}")
    ]


def test_a_driver_and_a_setting_that_fail_after_the_boot_are_both_reverted(trial: Any) -> None:
    w, plan = trial
    box, before = w.boxes["n1"], w.boxes["n1"].everything()
    box.broken, boot = True, box.reboot

    def reset() -> None:
        boot()
        box.kernel[THP] = "always"

    box.reboot = reset
    result = w.node(plan, w.journal(), reboot=True)
    assert outcomes(result) == [Outcome.FAILED, Outcome.FAILED], result
    assert all("rebooted once more" in step.why for step in result.steps), result
    assert box.everything() == before and box.boots == 3 and box.loaded == OLD


@pytest.mark.parametrize("number", range(1, 8))
def test_a_node_lost_after_the_second_reboot_is_unknown(
    world: Callable[..., World], node: Any, number: int
) -> None:
    w, plan = node
    box, before, calls = w.boxes["n1"], w.boxes["n1"].everything(), [0]
    box.broken = True

    def lose(box: Any, call: str, when: str) -> None:
        calls[0] += box.boots == 3
        if calls[0] >= number:
            raise WorkError("lost", "gone")

    w.executor.fault = lose
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN, result
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder, box.broken = False, "", False
    assert w.back(plan).outcome is Outcome.PENDING, "ECC is on until the next reboot"
    box.reboot()
    assert box.everything() == before


def test_a_resume_reverts_a_driver_that_failed_meanwhile(node: Any) -> None:
    w, plan = node
    box = w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.PENDING
    box.broken = True
    box.reboot()
    result = w.node(plan, w.journal(), resume=True)
    assert result.steps[2].outcome is Outcome.FAILED, result
    assert result.steps[2].why.endswith("reverted, effective after one more reboot")
    assert all(each["version"] == f"{OLD}-1" for each in box.packages.values())
    assert outcomes(result)[:2] == [Outcome.VERIFIED_AFTER_REBOOT, Outcome.UNKNOWN], result
    assert "before one more reboot" in result.steps[1].why
    box.reboot()
    again = w.node(plan, w.journal(), resume=True)
    assert outcomes(again) == [
        Outcome.VERIFIED_AFTER_REBOOT,
        Outcome.VERIFIED_AFTER_REBOOT,
        Outcome.FAILED,
    ], again


def test_a_node_with_a_new_job_is_not_rebooted_to_restore_a_driver(node: Any) -> None:
    w, plan = node
    box = w.boxes["n1"]
    box.broken = True
    reboot = box.reboot

    def taken() -> None:
        reboot()
        box.processes = [{"pid": 9, "command": "job", "gpu_minors": [1]}]

    box.reboot = taken
    result = w.node(plan, w.journal(), reboot=True)
    assert result.steps[2].outcome is Outcome.FAILED and box.boots == 2
    told = "after one more reboot; not rebooted: drain hook succeeded, but a GPU in use by job"
    assert told in result.steps[2].why


@pytest.mark.parametrize("number", range(40))
def test_a_run_killed_at_any_call_can_be_resumed(
    world: Callable[..., World], node: Any, number: int
) -> None:
    w, plan = node
    box, before, calls = w.boxes["n1"], w.boxes["n1"].everything(), [0]

    def kill(box: Any, call: str, when: str) -> None:
        calls[0] += 1
        if calls[0] == number:
            raise world.killed

    w.executor.fault = kill
    with suppress(world.killed):
        w.node(plan, w.journal())
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome in (Outcome.PENDING, Outcome.FAILED, Outcome.UNCHANGED), (number, result)
    w.back(plan)
    assert box.everything() == before, number


def test_a_rollback_has_the_same_time_limit_as_the_step(node: Any) -> None:
    _, plan = node
    step = plan.steps[-1]
    assert step.fix == "driver_version"
    seconds = [action.seconds for action in restore(*step.before, actions=step.actions)]
    assert seconds[:2] == [step.actions[0].seconds] * 2


def test_a_command_gets_the_time_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def ask(host: str, do: str, *, seconds: float | None = None, **rest: Any) -> SessionAnswer:
        asked.append(seconds)
        return SessionAnswer(result=ActResult(ok=True, code=0, output=""))

    with SshExecutor([], Options(deadline=100)) as worker:
        monkeypatch.setattr(worker, "_ask", ask)
        for seconds in (None, 1800, 5):
            worker.act("n1", RunCommand(words=("true",), seconds=seconds))
        worker.act("n1", RunCommand(words=("true",), seconds=1800), seconds=7)
    assert asked == [None, 1800, 100, 7]
