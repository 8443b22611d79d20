"""`nodevet slurm hook` with a real slurmctld and slurmd: drains, waits, gives back its own."""

import os
import subprocess
import threading
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm, running_slurm

from nodevet.slurm import scontrol
from nodevet.slurm.decide import plan_resume
from nodevet.slurm.nodes import ControllerNode, parse_nodes
from nodevet.slurm.scontrol import SlurmError
from nodevet.slurm.use import hook
from tests.slurm.conftest import NODEVET, Nodevet, drain, reason, shown
from tests.slurm.test_drain import OK, reports

pytestmark = pytest.mark.timeout(300)
PLAN = {"NODEVET_PLAN": "plan0001", "NODEVET_CHECKS": "power_limit,cpu_governor"}
TAKEN = "nodevet:plan-plan0001 power_limit is being fixed; cpu_governor is being fixed"
SWEPT = "nodevet:20261122T040000.000Z-0123abcd power_limit 490 W, expected 700 W (GPU 0-7)"


def call(
    nodevet: Nodevet, slurm: Slurm, what: str, node: str = "", **more: str
) -> "subprocess.CompletedProcess[str]":
    given = {**PLAN, "NODEVET_HOOK": what, **more}
    return nodevet("slurm", "hook", "--", node or slurm.node, **given)


@pytest.mark.other_slurm
def test_the_hook_drains_a_node_waits_for_its_job_and_resumes_it(
    slurm: Slurm, nodevet: Nodevet
) -> None:
    slurm.says("sbatch", "-o", os.devnull, "--wrap", "sleep 300")
    wait_for(lambda: slurm.jobs)
    env = {**os.environ, **PLAN, "NODEVET_HOOK": "drain", "SLURM_CONF": str(slurm.conf)}
    with subprocess.Popen(
        [*NODEVET, "slurm", "hook", slurm.node], env=env, stdout=subprocess.PIPE, text=True
    ) as waiting:
        wait_for(lambda: reason(slurm) == TAKEN)
        assert waiting.poll() is None and slurm.jobs  # it waits, and the job runs on
        slurm.says("scancel", "--user", "root")
        assert waiting.wait(60) == 0
        assert waiting.stdout and waiting.stdout.read() == "nodevet-hook: undrain\n"
    assert "CPUAlloc=0" in shown(slurm)
    again = call(nodevet, slurm, "drain")
    assert (again.returncode, reason(slurm)) == (0, TAKEN), again
    other = call(nodevet, slurm, "undrain", NODEVET_PLAN="plan0002")
    assert (other.returncode, reason(slurm)) == (0, TAKEN), other
    held = f"nodevet-hook: unchanged {slurm.node} stays drained: idle+drain, "
    assert other.stdout.startswith(f"{held}'nodevet:plan-plan0001 "), other
    assert call(nodevet, slurm, "undrain").returncode == 0
    assert reason(slurm) == ""


@pytest.mark.parametrize("foreign", ["bad PSU", "slurm-operator: x", "nodevet:plan-x $(id); a=b"])
def test_the_hook_refuses_the_drain_of_someone_else(
    slurm: Slurm, nodevet: Nodevet, foreign: str
) -> None:
    drain(slurm, foreign)
    before = shown(slurm).partition("Reason=")[2]
    for what, code in (("drain", 2), ("reboot", 2), ("undrain", 0)):
        done = call(nodevet, slurm, what)
        assert (done.returncode, "nodevet-hook: undrain" in done.stdout) == (code, False), done
        assert (foreign[:7] in done.stdout) is (what == "undrain"), done
        assert "Traceback" not in done.stderr
    assert shown(slurm).partition("Reason=")[2] == before


@pytest.mark.other_slurm
@pytest.mark.parametrize("own", [SWEPT, "Prolog error"])
def test_a_node_that_was_drained_before_is_used_and_stays_drained(
    slurm: Slurm, nodevet: Nodevet, own: str
) -> None:
    drain(slurm, own)
    during = "nodevet:plan-plan0001+prolog visit Prolog error"
    if own == SWEPT:
        during = SWEPT.replace("nodevet:", "nodevet:plan-plan0001+")
    for what, shows in (("drain", during), ("drain", during), ("undrain", own)):
        done = call(nodevet, slurm, what)
        assert (done.returncode, reason(slurm)) == (0, shows), done
    assert f"{slurm.node} stays drained: " in done.stdout, done


def test_the_hook_stops_if_someone_else_drains_while_it_waits(
    slurm: Slurm, nodevet: Nodevet
) -> None:
    slurm.says("sbatch", "-o", os.devnull, "--wrap", "sleep 300")
    wait_for(lambda: slurm.jobs)
    ended: list[subprocess.CompletedProcess[str]] = []
    waiting = threading.Thread(target=lambda: ended.append(call(nodevet, slurm, "drain")))
    waiting.start()
    wait_for(lambda: reason(slurm) == TAKEN)
    drain(slurm, "mine now")
    waiting.join(60)
    assert ended and ended[0].returncode == 2, ended
    assert "its reason is not nodevet's: 'mine now' by root" in ended[0].stderr
    assert call(nodevet, slurm, "undrain").returncode == 0
    assert reason(slurm) == "mine now"


@pytest.mark.other_slurm
def test_slurm_reboots_a_drained_node_and_keeps_it_drained(
    nodevet: Nodevet, is_other: bool, tmp_path: Path
) -> None:
    program = tmp_path / "reboot"
    program.write_text(f"#!/bin/sh\ntouch {program}ed\n")
    program.chmod(0o755)
    more = f"RebootProgram={program}\nResumeTimeout=60\nReturnToService=2\n"
    with running_slurm(tmp_path, more, must=is_other) as slurm:
        conf = {"SLURM_CONF": str(slurm.conf)}
        assert call(nodevet, slurm, "reboot", **conf).returncode == 2  # nobody drained it
        done = call(nodevet, slurm, "drain", **conf)
        assert done.stdout == "nodevet-hook: undrain reboot\n"
        assert call(nodevet, slurm, "reboot", **conf).returncode == 0
        wait_for(lambda: "REBOOT_ISSUED" in shown(slurm) and (tmp_path / "rebooted").exists())
        assert "is being rebooted" in call(nodevet, slurm, "drain", **conf).stderr
        slurm.boot_node()
        wait_for(lambda: "IDLE+DRAIN " in shown(slurm))
        assert reason(slurm) == f"{TAKEN} : reboot issued"
        assert call(nodevet, slurm, "undrain", **conf).returncode == 0
        assert reason(slurm) == ""


@pytest.mark.parametrize("name", ["ALL", "-o", "n[1-2]", "n1,n2", "x State=RESUME", "$(id)", "\n"])
def test_a_hostile_name_touches_no_node(slurm: Slurm, nodevet: Nodevet, name: str) -> None:
    for what in ("drain", "reboot", "undrain"):
        done = call(nodevet, slurm, what, name)
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr
    assert reason(slurm) == ""


def test_an_unreachable_controller_is_refused(
    slurm: Slurm, nodevet: Nodevet, tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(slurm.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    done = call(nodevet, slurm, "drain", SLURM_CONF=str(conf))
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "scontrol" in done.stderr and "Traceback" not in done.stderr


class Controller:
    """A slurmctld that answers each question about the node with the next of these."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: ControllerNode | str) -> None:
        self._answers = list(answers)
        self.done: list[str] = []
        monkeypatch.setattr(scontrol, "read_nodes", self._nodes)
        monkeypatch.setattr(scontrol, "read_node", lambda name: self._nodes([name])[name])
        monkeypatch.setattr(scontrol, "reboots", lambda: False)
        monkeypatch.setattr(scontrol, "drain", lambda names, reason: self.done.append(reason))
        monkeypatch.setattr(scontrol, "resume", lambda names: self.done.append("resume"))
        monkeypatch.setattr(hook, "PAUSES", (0.0,))

    def _nodes(self, names: list[str]) -> dict[str, ControllerNode]:
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            raise SlurmError(answer)
        return {answer.name: answer}


IDLE = ControllerNode("n1", ("idle",))
BUSY = ControllerNode("n1", ("mixed", "drain"), TAKEN, has_jobs=True)
FREE = ControllerNode("n1", ("idle", "drain"), TAKEN)
CHECKS = ["power_limit", "cpu_governor"]


def drained(said: list[str]) -> None:
    hook.drain("n1.example.com", "plan0001", CHECKS, said.append, said.append)


def test_a_controller_that_goes_away_while_it_waits_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = "scontrol did not end within 8 s"
    asked = Controller(monkeypatch, ControllerNode("x"), IDLE, BUSY, down, down, BUSY, FREE)
    said: list[str] = []
    drained(said)
    assert asked.done == [TAKEN]
    assert said == ["undrain"] + [f"still waiting for n1: {down}"] * 2


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (IDLE, "did not keep the drain"),  # the drain did not take
        (FREE._replace(reason="bad PSU", user="bob"), "did not keep the drain of n1: idle"),
        ("half an answer", "half an answer"),
    ],
)
def test_a_drain_that_slurm_does_not_keep_is_an_error(
    monkeypatch: pytest.MonkeyPatch, last: ControllerNode | str, why: str
) -> None:
    Controller(monkeypatch, IDLE, last)
    with pytest.raises(SlurmError, match=why):
        hook.drain("n1", "plan0001", CHECKS, lambda can: None, lambda text: None)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (FREE._replace(reason=""), "gave no reason"),
        (IDLE._replace(states=("down",), reason="Not responding"), "its reason is not nodevet's"),
        (FREE._replace(states=("down", "drain", "reboot_issued")), "is being rebooted"),
    ],
)
def test_the_hook_refuses_a_node_with_a_foreign_reason_or_a_pending_reboot(
    monkeypatch: pytest.MonkeyPatch, node: ControllerNode, why: str
) -> None:
    asked = Controller(monkeypatch, node)
    with pytest.raises(SlurmError, match=why):
        hook.drain("n1", "plan0001", CHECKS, lambda can: None, lambda text: None)
    assert asked.done == []


def test_a_node_comes_back_only_once_slurm_has_rebooted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rebooting = FREE._replace(states=("down", "drain", "reboot_issued"))
    asked = Controller(monkeypatch, rebooting, "down", rebooting, FREE, IDLE)
    hook.undrain("n1", "plan0001", lambda text: None, lambda text: None)
    assert asked.done == ["resume"]


STARTED = ControllerNode("n1", ("unknown", "drain"), TAKEN)  # by a controller that has just started


def test_a_node_of_a_controller_that_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slurm 22.05 resumes such a node, and says that it did not."""
    asked = Controller(monkeypatch, STARTED, STARTED, FREE, IDLE)
    hook.undrain("n1", "plan0001", lambda text: None, lambda text: None)
    assert asked.done == ["resume"] and not asked._answers
    asked = Controller(monkeypatch, STARTED, FREE)
    drained([])
    assert not asked._answers


def test_a_resume_that_took_effect_counts_even_if_scontrol_reports_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """scontrol may end in an error, or too late, although the controller did it."""
    Controller(monkeypatch, FREE, IDLE, IDLE)

    def refused(names: list[str]) -> None:
        raise SlurmError("scontrol did not end within 8 s")

    monkeypatch.setattr(scontrol, "resume", refused)
    hook.undrain("n1", "plan0001", lambda text: None, lambda text: None)
    Controller(monkeypatch, FREE, FREE)
    monkeypatch.setattr(scontrol, "resume", refused)
    with pytest.raises(SlurmError, match="did not end"):
        hook.undrain("n1", "plan0001", lambda text: None, lambda text: None)


def test_a_restarted_controller_keeps_the_drain_until_undrain(
    slurm: Slurm, nodevet: Nodevet
) -> None:
    assert call(nodevet, slurm, "drain").returncode == 0
    slurm.restart_controller()
    wait_for(lambda: "State=" in shown(slurm))
    done = call(nodevet, slurm, "undrain")
    assert (done.returncode, done.stderr, reason(slurm)) == (0, "", ""), done


def test_resume_waits_for_a_controller_that_has_just_started() -> None:
    row = f"NodeName=gpu1 State=UNKNOWN+DRAIN Reason={SWEPT} [root@2026-11-22T04:00:01]"
    (plan,) = plan_resume(reports(OK), parse_nodes(row), {})
    assert plan.why_not == "Slurm's controller has just started, and does not know its state yet"


def test_resume_skips_a_node_that_apply_may_be_working_on() -> None:
    row = "NodeName=gpu1 State=IDLE+DRAIN Reason={} : reboot issued [root@2026-11-24T17:01:24]"
    nodes = parse_nodes(row.format(TAKEN.replace("; cpu_governor is being fixed", "")))
    (plan,) = plan_resume(reports(OK), nodes, {})
    assert "resume --plan plan0001" in plan.why_not
    (plan,) = plan_resume(reports(OK), nodes, {}, ["plan0001"])
    assert plan.why_not == ""
    nodes = parse_nodes(row.format(SWEPT.replace("nodevet:", "nodevet:plan-plan0002+")))
    for ended, why in ((), "resume --plan plan0002"), (("plan0001",), "resume --plan plan0002"):
        (plan,) = plan_resume(reports(OK), nodes, {}, ended)
        assert plan.why_not.endswith(why)
    (plan,) = plan_resume(reports(OK), nodes, {}, ["plan0002"])
    assert plan.why_not == ""


@pytest.mark.parametrize(("program", "has"), [("/sbin/reboot", True), ("(null)", False)])
def test_a_key_that_a_later_slurm_adds_changes_nothing(program: str, has: bool) -> None:
    """Slurm 26.05 has HealthCheckTimeout."""
    config = f"HealthCheckTimeout      = 60 sec\nRebootProgram           = {program}\nResv = x\n"
    assert scontrol.has_reboot_program(config) is has
