"""Two controllers and a person at one node: a real slurmctld and the real drain hook; the node
itself is modelled."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modelled_nodes import KilledError, World
from msgspec.structs import replace
from one_machine_slurm import Slurm

from nodevet.fix.journal.journal import state
from nodevet.fix.rollout.drain_hook import DrainHook
from nodevet.fixing.result import Outcome, Refusal
from nodevet.slurm.decide import DrainLimits, plan_drain, plan_resume
from nodevet.slurm.nodes import parse_nodes
from tests.slurm.conftest import FAIL, Nodevet, drain, reason, shown
from tests.slurm.test_drain import OK, POWER, reports

pytestmark = pytest.mark.timeout(300)
FIRST, SECOND = "plan0001", "plan0002"
TAKEN = f"nodevet:plan-{FIRST} pages is being fixed"
BOB = "bob: bad PSU"


@pytest.fixture
def world(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    world = World(tmp_path, [slurm.node], {"pages": {"mode": "never", "risk": "drain"}})
    yield world
    world.close()


def run(world: World, host: str, plan: str, **more: Any) -> Any:
    """A run of the plan of one controller, which drains by the real hook."""
    hook = f"{sys.executable} -m nodevet slurm hook"
    world.terms = replace(world.terms, who=plan, plan=plan, drain_hook=hook)
    return world.node(world.plan(), world.journal(plan), host, **more)


def killed_when_drained(world: World, slurm: Slurm) -> None:
    def fault(box: Any, call: str, when: str) -> None:
        if call == "probe" and reason(slurm):
            raise KilledError

    world.executor.fault = fault
    with pytest.raises(KilledError):
        run(world, slurm.node, FIRST)
    world.executor.fault = lambda box, call, when: None
    assert reason(slurm) == TAKEN


def test_resuming_a_dead_run_does_not_undrain_a_node_that_another_run_holds(
    world: World, slurm: Slurm
) -> None:
    killed_when_drained(world, slurm)
    box = world.boxes[slurm.node]
    box.holder = SECOND
    result = run(world, slurm.node, FIRST, resume=True)
    assert (result.refusal, reason(slurm)) == (Refusal.LOCKED, TAKEN), result
    assert result.why == f"locked by {SECOND}; stays drained"
    box.holder = ""
    done = run(world, slurm.node, SECOND)
    assert (done.outcome, reason(slurm)) == (Outcome.CHANGED, TAKEN), done
    assert f"{slurm.node} stays drained: idle+drain, '{TAKEN}' by " in done.why
    last = run(world, slurm.node, FIRST, resume=True)
    assert (last.outcome.good, last.why, reason(slurm)) == (True, "", ""), last


def test_a_node_that_an_admin_drains_during_a_run_stays_drained(world: World, slurm: Slurm) -> None:
    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and reason(slurm) == TAKEN:
            drain(slurm, BOB)

    world.executor.fault = fault
    result = run(world, slurm.node, FIRST)
    assert (result.outcome, reason(slurm)) == (Outcome.CHANGED, BOB), result
    assert f"{slurm.node} stays drained: idle+drain, '{BOB}' by root" in result.why
    hosts = state(world.journal(FIRST).records).hosts
    assert not hosts[slurm.node].is_taken  # nothing of this run is left to give back


def test_a_node_that_a_person_drained_before_is_refused_and_kept(
    world: World, slurm: Slurm
) -> None:
    drain(slurm, BOB)
    result = run(world, slurm.node, FIRST)
    assert (result.outcome, reason(slurm)) == (Outcome.REFUSED, BOB), result
    assert BOB in result.why and world.boxes[slurm.node].writes == 0
    drain(slurm, "NHC: check_hw_gpu")  # Slurm's own health check
    assert run(world, slurm.node, SECOND).outcome is Outcome.REFUSED
    assert reason(slurm) == "NHC: check_hw_gpu"


def test_a_controller_of_slurm_that_restarts_during_a_run_changes_nothing(
    world: World, slurm: Slurm
) -> None:
    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and not box.writes and when == "before":
            slurm.restart_controller()

    world.executor.fault = fault
    result = run(world, slurm.node, FIRST)
    assert (result.outcome, result.why, reason(slurm)) == (Outcome.CHANGED, "", ""), result


def written(slurm: Slurm) -> str:
    """The reason with its tags."""
    return shown(slurm).partition(" Reason=")[2].rpartition(" [root@")[0]


@pytest.mark.parametrize(
    ("before", "during"),
    [
        ("nodevet:local power_limit 490 W", "nodevet:plan-plan0001+local power_limit 490 W"),
        (
            "[HC] nodevet:20261122T040000.000Z-0123abcd xid; [HC] dkms",
            "[HC] nodevet:plan-plan0001+20261122T040000.000Z-0123abcd xid; [HC] dkms",
        ),
        ("Prolog error", "nodevet:plan-plan0001+prolog visit Prolog error"),
    ],
    ids=["health", "sweep", "prolog"],
)
def test_a_node_that_was_drained_before_shows_that_apply_works_on_it(
    world: World, slurm: Slurm, before: str, during: str
) -> None:
    drain(slurm, before)
    seen: list[tuple[str, list[str]]] = []

    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and when == "before" and not seen:
            found = plan_resume(reports(OK), parse_nodes(shown(slurm)), {})
            seen.append((written(slurm), [plan.why_not for plan in found]))

    world.executor.fault = fault
    result = run(world, slurm.node, FIRST)
    assert (result.outcome, written(slurm)) == (Outcome.CHANGED, before), result
    kept = "apply drained it for plan plan0001; if apply no longer runs: resume --plan plan0001"
    assert seen == [(during, [kept])]
    assert f"{slurm.node} stays drained: idle+drain, " in result.why


def test_no_sweep_or_health_check_takes_a_node_from_apply(
    world: World, slurm: Slurm, nodevet: Nodevet, tmp_path: Path
) -> None:
    failing = tmp_path / "fail.yaml"
    failing.write_text(FAIL)
    ended: list[Any] = []

    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and when == "before" and not ended:
            ended.append(nodevet("slurm", "health", "-b", failing))
            assert reason(slurm) == TAKEN

    world.executor.fault = fault
    result = run(world, slurm.node, FIRST)
    assert "apply drained it for a plan and has not given it back" in ended[0].stderr, ended
    assert (result.outcome, result.why, reason(slurm)) == (Outcome.CHANGED, "", ""), result
    nodes = {"gpu1": parse_nodes(f"NodeName=gpu1 State=IDLE+DRAIN Reason={TAKEN}")["gpu1"]}
    (plan,) = plan_drain(reports(POWER), nodes, DrainLimits(share=1.0, keep=0))
    assert plan.why_not == "apply drained it for a plan and has not given it back"


def test_no_run_switches_off_a_node_that_another_run_may_be_rebooting(
    world: World, slurm: Slurm
) -> None:
    """The node does not answer, so its lock cannot be taken; both runs see the drain reason."""
    killed_when_drained(world, slurm)
    hook = f"{sys.executable} -m nodevet slurm hook"
    first, second = (DrainHook(hook, slurm.node, 60.0, plan) for plan in (FIRST, SECOND))
    assert second.drain() == ""
    both = TAKEN.replace("nodevet:", f"nodevet:plan-{SECOND}+")
    assert reason(slurm) == both
    other = f"apply works on {slurm.node} for plan {{}}, too, and may be rebooting it"
    assert other.format(SECOND) in first.drain(is_locked=False)
    assert other.format(FIRST) in second.drain(is_locked=False)
    assert (first.drain(), reason(slurm)) == ("", both)
    assert second.undrain() and reason(slurm) == TAKEN
    assert first.drain(is_locked=False) == "" == second.drain()
    assert first.undrain() and reason(slurm) == TAKEN.replace(FIRST, SECOND)
    assert (second.undrain(), reason(slurm)) == ("", "")


def test_two_runs_of_one_plan_have_two_ids_in_the_drain_reason(
    world: World, slurm: Slurm, nodevet: Nodevet
) -> None:
    hook = f"{sys.executable} -m nodevet slurm hook"
    first, second = (
        DrainHook(hook, slurm.node, 60.0, FIRST, run) for run in ("0c51b9e4", "11111111")
    )
    assert first.drain() == "" == first.drain(is_locked=False)
    only = f"nodevet:plan-{FIRST}-0c51b9e4 visit is being fixed"
    assert reason(slurm) == only
    works = f"apply works on {slurm.node} for plan {FIRST}-0c51b9e4, too, and may be rebooting it"
    assert works in second.drain(is_locked=False)
    assert (second.drain(), reason(slurm)) == ("", f"nodevet:plan-{FIRST}-11111111+{only[8:]}")
    assert second.undrain().startswith(f"{slurm.node} stays drained: ")
    assert reason(slurm) == only
    nodes = parse_nodes(shown(slurm))
    (kept,) = plan_resume(reports(OK), nodes, {})
    assert kept.why_not.startswith(f"apply drained it for plan {FIRST}-0c51b9e4; ")
    (ended,) = plan_resume(reports(OK), nodes, {}, [FIRST])
    assert not ended.why_not.startswith("apply drained it")
    assert second.drain() == ""
    done = nodevet("slurm", "hook", slurm.node, "--do", "undrain", "--plan", FIRST)
    assert (done.returncode, reason(slurm)) == (0, ""), done
