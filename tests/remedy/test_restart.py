"""What is in force once a service starts anew, and what is bound while it runs: over a model.

The check and the fix are numa_binding's own. A service computes on GPU 0, of node 0 (CPUs 0-1),
and may run anywhere (0-3) unless its drop-in says where.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix.plan.candidates import Rules
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome, Refusal
from nodevet.resource import Resource
from nodevet.resource.unit import SetUnit
from planned_fleet import proposal_of

World = Any
JOB = "job.service"
DROP_IN = "/etc/systemd/system/{}.d/90-nodevet-numa-binding.conf"
BUS = ("0000:19:00.0", "0000:29:00.0")
NOW = datetime(2026, 11, 20, 22, 0, tzinfo=timezone.utc)


def servant(model: type) -> type:
    """A node of the model with services that compute on GPU 0."""

    class Servant(model):  # type: ignore[misc]
        def __init__(self, name: str, *services: str) -> None:
            super().__init__(name)
            self.jobs: dict[str, dict[str, Any]] = {}
            self.next, self.clock, self.deaf, self.late = 100, 5.0, False, 0
            for service in services:
                self.files[f"/etc/systemd/system/{service}"] = ("[Service]\n", 0o644)
                self.units[service] = {
                    "enabled": "enabled",
                    "active": "active",
                    "masked": False,
                    "fragment": "",
                }
                self.start(service)

        def start(self, service: str) -> None:
            """Anew: another process, where the drop-in says."""
            text, _ = self.files.get(DROP_IN.format(service), ("", 0))
            bound = re.search("CPUAffinity=([0-9,-]+)", text)
            cpus = bound.group(1) if bound and not self.deaf else "0-3"
            self.next, self.clock = self.next + 1, self.clock + 1
            job = {"pid": self.next, "cpus": cpus, "started_s": self.clock, "late": self.late}
            self.jobs[service] = job

        def reboot(self) -> None:
            super().reboot()
            for service in list(self.jobs):
                del self.jobs[service]
                if self.units[service]["enabled"] == "enabled":
                    self.start(service)

        def evidence(self) -> bytes:
            document = json.loads(super().evidence())
            there = []
            for service, job in self.jobs.items():
                if job["late"]:
                    job["late"] -= 1
                else:
                    there.append((service, job))
            sections = document["sections"]
            for index, gpu in enumerate(sections["gpu"]["data"]["gpus"]):
                gpu["bus_id"] = BUS[index]
                gpu["processes"] = [{"pid": job["pid"]} for _, job in there if not index]
            functions = [{"address": bus, "numa_node": node} for node, bus in enumerate(BUS)]
            nodes = [
                {"id": 0, "cpulist": "0-1", "memory_total_kb": 1024},
                {"id": 1, "cpulist": "2-3", "memory_total_kb": 1024},
            ]
            sections["host"]["data"]["uptime_s"] = self.clock + 0.5
            sections["pci"] = {"status": "ok", "data": {"functions": functions}}
            sections["numa"] = {"status": "ok", "data": {"online": "0-1", "nodes": nodes}}
            sections["processes"]["data"]["processes"] += [
                {
                    "pid": job["pid"],
                    "command": "python3",
                    "cpus_allowed": job["cpus"],
                    "mems_allowed": "0",
                    "unit": service,
                    "cgroup": f"/system.slice/{service}",
                    "started_s": job["started_s"],
                    "gpu_minors": [0],
                }
                for service, job in there
            ]
            return json.dumps(document).encode()

        def look(self, resource: Resource) -> Any:
            if resource.kind != "process":
                return super().look(resource)
            seen = super().look(Resource(kind="kernel", name="/no"))
            for job in self.jobs.values():
                if str(job["pid"]) == resource.name:
                    value = {"cpus": job["cpus"], "mems": "0", "threads": {}}
                    value["started_s"] = job["started_s"]
                    seen = replace(seen, exists=True, value=value)
            return replace(seen, resource=resource)

        def act(self, action: Any) -> Any:
            words = getattr(action, "words", ())
            if words[:4] == ("taskset", "-a", "-p", "-c"):
                (job,) = (each for each in self.jobs.values() if str(each["pid"]) == words[5])
                job["cpus"] = words[4]
                return super().act(replace(action, words=("systemctl", "daemon-reload")))
            acted = super().act(action)
            if isinstance(action, SetUnit) and action.restart and acted.ok:
                self.start(action.name)
            return acted

    return Servant


@pytest.fixture
def serving(world: Callable[..., World]) -> Callable[..., World]:
    """A world whose node n1 runs services: `serving("a.service", "b.service")`."""

    def made(*services: str) -> World:
        w = world(numa_binding={"bound": True})
        w.boxes["n1"] = servant(type(w.boxes["n1"]))("n1", *(services or (JOB,)))
        w.terms = replace(w.terms, drain_hook="true")
        return w

    return made


def jobs(box: Any) -> dict[str, tuple[int, str]]:
    return {service: (job["pid"], job["cpus"]) for service, job in box.jobs.items()}


def test_without_a_restart_a_step_is_pending_and_no_running_job_is_touched(serving: Any) -> None:
    w = serving()
    plan, box = w.plan(), w.boxes["n1"]
    (step,) = plan.steps
    assert (step.effective, step.risk, step.services) == ("restart", Risk.LIVE, (JOB,))
    before, ran = box.everything(), jobs(box)
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.PENDING and result.why == "effective after a restart"
    assert jobs(box) == ran and DROP_IN.format(JOB) in box.files
    assert w.node(plan, w.journal(), resume=True).outcome is Outcome.PENDING
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before and jobs(box) == ran


def test_a_resume_reports_a_pending_setting_that_is_gone(serving: Any) -> None:
    w = serving()
    plan, box = w.plan(), w.boxes["n1"]
    before, ran = box.everything(), jobs(box)
    assert w.node(plan, w.journal()).outcome is Outcome.PENDING
    del box.files[DROP_IN.format(JOB)]
    result = w.node(plan, w.journal(), resume=True)
    assert (result.outcome, result.why) == (Outcome.FAILED, "was set earlier, and is not set now")
    assert box.everything() == before and jobs(box) == ran


def test_a_restarted_service_is_bound_and_leaves_nothing_to_plan(serving: Any) -> None:
    w = serving()
    box = w.boxes["n1"]
    assert w.node(w.plan(), w.journal()).outcome is Outcome.PENDING
    assert w.plan().steps
    box.start(JOB)
    assert jobs(box) == {JOB: (102, "0-1")} and not w.plan().steps


def test_a_step_that_needs_a_restart_is_verified_after_a_reboot(serving: Any) -> None:
    """That the service computes on a GPU is no obstacle; that another process does, is one."""
    w = serving()
    plan, box = w.plan(), w.boxes["n1"]
    box.processes = [{"pid": 9, "command": "job", "unit": "x.service", "gpu_minors": [1]}]
    refused = w.node(plan, w.journal(), reboot=True)
    assert (refused.outcome, refused.refusal) == (Outcome.REFUSED, Refusal.PRECONDITION), refused
    assert "GPU 1 in use by job" in refused.why and "python3" not in refused.why
    box.processes = []
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and result.rebooted, result
    assert jobs(box)[JOB][1] == "0-1"


@pytest.mark.parametrize("why", ["deaf", "disabled"])
def test_a_pending_step_is_restored_if_a_reboot_does_not_fix_it(serving: Any, why: str) -> None:
    """Also where the service does not start: the check then says nothing of it."""
    w = serving()
    plan, box = w.plan(), w.boxes["n1"]
    box.deaf = why == "deaf"
    box.units[JOB]["enabled"] = "enabled" if box.deaf else "disabled"
    files = dict(box.files)
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED, result
    told = "0-3, expected" if box.deaf else f"it names no process of {JOB} that is on a GPU"
    assert "not persistent across reboot" in result.why and told in result.why
    assert box.files == files


def test_running_processes_are_bound_now_and_released_on_rollback(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("now"), w.boxes["n1"]
    (step,) = plan.steps
    assert (step.effective, step.risk, step.options) == ("now", Risk.LIVE, ("now",))
    before, ran = box.everything(), jobs(box)
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.CHANGED, result
    assert jobs(box) == {JOB: (ran[JOB][0], "0-1")} and not w.plan().steps
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert box.everything() == before and jobs(box) == ran


def test_another_process_with_the_same_pid_is_never_bound(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("now"), w.boxes["n1"]
    box.jobs[JOB]["started_s"] += 100
    result = w.node(plan, w.journal())
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE), result
    assert "process 101 is " in result.why and not box.writes


def test_a_rollback_after_a_reboot_does_not_unbind_new_processes(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("now"), w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.next = 100  # what starts at boot gets the same number
    box.reboot()
    assert jobs(box) == {JOB: (101, "0-1")}
    result = w.back(plan)
    assert result.outcome is Outcome.PENDING, result
    assert result.why == f"reverted, effective after a restart of {JOB}"
    assert DROP_IN.format(JOB) not in box.files and jobs(box) == {JOB: (101, "0-1")}


def test_a_step_that_fails_after_a_reboot_does_not_rebind_new_processes(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("now"), w.boxes["n1"]
    box.next, box.deaf = 100, True
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED, result
    assert "taskset" not in str(w.journal().records[-1])
    assert DROP_IN.format(JOB) not in box.files and jobs(box) == {JOB: (101, "0-3")}


def test_a_restart_requires_a_drained_node(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("restart"), w.boxes["n1"]
    (step,) = plan.steps
    assert (step.effective, step.risk) == ("now", Risk.DRAIN)
    ran = jobs(box)
    w.terms = replace(w.terms, drain_hook="false")
    assert w.node(plan, w.journal()).refusal is Refusal.PRECONDITION and jobs(box) == ran
    w.terms = replace(w.terms, drain_hook="true")
    box.processes = [{"pid": 9, "command": "job", "unit": "x.scope", "gpu_minors": [0]}]
    assert w.node(plan, w.journal()).refusal is Refusal.PRECONDITION and jobs(box) == ran
    box.processes = []
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    assert jobs(box) == {JOB: (102, "0-1")}
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert jobs(box) == {JOB: (103, "0-3")} and DROP_IN.format(JOB) not in box.files


def test_a_container_may_not_pass_for_the_service(serving: Any) -> None:
    """A systemd within one may have a unit of the same name."""
    w = serving()
    plan, box = w.plan("restart"), w.boxes["n1"]
    box.processes = [
        {"pid": 9, "command": "x", "unit": JOB, "cgroup": f"/site/1f/{JOB}", "gpu_minors": [1]}
    ]
    assert w.node(plan, w.journal()).refusal is Refusal.PRECONDITION and not box.writes


def test_a_restart_that_does_not_bind_the_service_is_undone_by_another_one(serving: Any) -> None:
    w = serving()
    plan, box = w.plan("restart"), w.boxes["n1"]
    box.deaf = True
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.FAILED and "0-3, expected" in result.why, result
    assert DROP_IN.format(JOB) not in box.files and jobs(box) == {JOB: (103, "0-3")}


@pytest.mark.parametrize("seconds", [0, 20])
def test_a_service_that_is_late_on_its_gpu_is_waited_for(serving: Any, seconds: float) -> None:
    w = serving()
    plan, box = w.plan("restart"), w.boxes["n1"]
    w.terms = replace(w.terms, boot_settle=seconds)
    box.late = 2
    result = w.node(plan, w.journal())
    assert result.outcome is (Outcome.CHANGED if seconds else Outcome.FAILED), result
    assert seconds or f"names no process of {JOB}" in result.why


def test_each_service_is_judged_by_its_own_processes(serving: Any) -> None:
    """The first is right although the second is still wrong, and a user's process stays so."""
    w = serving("a.service", "b.service")
    box = w.boxes["n1"]
    for options in (("restart",), ()):
        plan = w.plan(*options)
        assert [step.services for step in plan.steps] == [("a.service",), ("b.service",)]
        result = w.node(plan, w.journal("-".join(options) or "default"))
        wanted = Outcome.CHANGED if options else Outcome.PENDING
        assert [step.outcome for step in result.steps] == [wanted] * 2, result
        box.files = {path: it for path, it in box.files.items() if "nodevet" not in path}
        for service in box.jobs:
            box.start(service)


def proposed(w: World, *options: str) -> Any:
    """What `nodevet plan` makes of the node as it is."""
    rules = Rules(id="0a1b2c3d", author="ann", now=NOW, options=frozenset(options))
    return proposal_of(w, rules)


def test_a_setting_that_waits_for_a_restart_is_not_planned_again(serving: Any) -> None:
    w = serving()
    (step,) = proposed(w).plan.steps
    assert (step.options, step.services) == ((), (JOB,))
    w.node(w.plan(), w.journal())
    again = proposed(w)
    (conflict,) = again.plan.conflicts
    assert not again.plan.steps and again.exit_code == 3
    assert conflict.why == f"it is set, and effective after a restart: {JOB}"
    for option in ("restart", "now"):
        (step,) = proposed(w, option).plan.steps
        assert (step.options, step.effective) == ((option,), "now")
