"""A node is given back only by the run that holds its lock: another run may be at work there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.fix.rollout import drain_hook
from nodevet.fixing.result import Outcome
from tests.remedy.test_clearance import offering, taken

World = Any


def killed_when_drained(w: World, plan: Any, folder: Path, killed: Any) -> Callable[[], list[str]]:
    """The controller is killed once the hook has drained the node. What the hook is called for."""
    calls = offering(w, folder)

    def fault(box: Any, call: str, when: str) -> None:
        if call == "probe" and (folder / "calls").exists():
            raise killed

    w.executor.fault = fault
    with pytest.raises(killed):
        w.node(plan, w.journal(), reboot=True)
    w.executor.fault = lambda box, call, when: None
    assert (calls(), taken(w)) == (["drain"], ["n1"])
    return calls


def test_a_node_that_another_run_holds_is_not_given_back(world: Any, tmp_path: Path) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    calls = killed_when_drained(w, plan, tmp_path, world.killed)
    box.holder = "bob"
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert (result.outcome, calls()) == (Outcome.REFUSED, ["drain"]), result
    assert result.why == "locked by bob; stays drained", result
    assert taken(w) == ["n1"]
    box.holder = ""
    assert w.node(plan, w.journal(), resume=True, reboot=True).outcome.good
    assert (calls()[-1], taken(w)) == ("undrain", [])


def test_a_closed_plan_does_not_give_back_a_node_that_another_run_holds(
    world: Any, tmp_path: Path
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    calls = killed_when_drained(w, plan, tmp_path, world.killed)
    over = {"resume": True, "reboot": True, "closed": lambda reboot: "the plan expired"}
    box.holder = "bob"
    result = w.node(plan, w.journal(), **over)
    assert (result.outcome, calls()) == (Outcome.REFUSED, ["drain"]), result
    assert result.why == "the plan expired; stays drained: locked by bob", result
    box.holder = ""
    assert w.node(plan, w.journal(), **over).why == "the plan expired"
    assert (calls(), taken(w)) == (["drain", "undrain"], [])


def test_a_node_that_does_not_answer_is_not_given_back(world: Any, tmp_path: Path) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    calls = killed_when_drained(w, plan, tmp_path, world.killed)
    box.gone = 9
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert (result.outcome, calls()) == (Outcome.REFUSED, ["drain"]), result
    assert result.why == "connection refused; stays drained", result
    assert taken(w) == ["n1"]


@pytest.mark.parametrize("what", ["apply", "rollback"])
def test_the_lock_is_held_until_the_node_is_given_back(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    w = world(pages={"mode": "never", "risk": "drain"})
    plan, box = w.plan(), w.boxes["n1"]
    offering(w, tmp_path)
    holders = []
    undrain = drain_hook.DrainHook.undrain

    def noting(hook: drain_hook.DrainHook) -> str:
        holders.append(box.holder)
        return undrain(hook)

    monkeypatch.setattr(drain_hook.DrainHook, "undrain", noting)
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    if what == "rollback":
        assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert set(holders) == {"test"}, holders
    assert box.holder == ""


def test_the_result_says_who_else_holds_a_node(world: Callable[..., World], tmp_path: Path) -> None:
    w = world(pages={"mode": "never", "risk": "drain"})
    held = "echo 'nodevet-hook: unchanged n1 stays drained: bad PSU by bob'"
    calls = offering(w, tmp_path, f"test $NODEVET_HOOK != undrain || {held}")
    result = w.node(w.plan(), w.journal())
    assert (result.outcome, calls()) == (Outcome.CHANGED, ["drain", "undrain"])
    assert result.why == "n1 stays drained: bad PSU by bob"
    assert taken(w) == []


def test_a_refused_rollback_gives_back_only_a_node_that_it_drained_itself(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """A run that is pending keeps its node drained, and one that ended well has given it back."""
    refuse = tmp_path / "refuse"
    for settings, outcome, ends in (
        ({"ecc_mode": True}, Outcome.PENDING, ["drain", "drain"]),
        (
            {"pages": {"mode": "never", "risk": "drain"}},
            Outcome.CHANGED,
            ["undrain", "drain", "undrain"],
        ),
    ):
        w = world(**settings)
        plan = w.plan()
        calls = offering(w, tmp_path, f"test $NODEVET_HOOK != drain || test ! -e {refuse}")
        assert w.node(plan, w.journal()).outcome is outcome
        refuse.touch()
        result = w.back(plan)
        refuse.unlink()
        assert result.outcome is Outcome.REFUSED, result
        assert calls()[-len(ends) :] == ends and taken(w) == ["n1"] * (ends[-1] == "drain")
        assert result.why.endswith("stays drained") is (ends[-1] == "drain"), result
