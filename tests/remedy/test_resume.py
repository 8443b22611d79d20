"""A run that is taken up again: what was begun is looked at until its state is known."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodevet.remedy.hands import WorkError
from nodevet.remedy.journal import Verified, read
from nodevet.remedy.result import Outcome

World = Any
Desk = Any


def begun(d: Desk) -> Any:
    """The first node was verified as its controller was killed."""
    assert d.apply().code == 0
    records = read(d.run)
    d.cut(next(n for n, record in enumerate(records, 1) if isinstance(record, Verified)))
    return d.w.boxes["n1"]


def locked(box: Any, w: World) -> None:
    box.holder = "bob"


def rebooting(box: Any, w: World) -> None:
    box.gone = 9


def silent(box: Any, w: World) -> None:
    def fault(box: Any, call: str, when: str) -> None:
        if call == "probe":
            raise WorkError("timeout", "no answer within 60 s")

    w.hands.fault = fault


@pytest.mark.parametrize("trouble", [locked, rebooting, silent])
def test_r5_a_node_that_was_begun_is_looked_at_by_every_resume_until_it_is_known(
    desk: Callable[..., Desk], trouble: Callable[..., None]
) -> None:
    d = desk("n1")
    box = begun(d)
    for _ in range(2):
        trouble(box, d.w)
        said = d.resume()
        assert said.code == 3 and d.outcomes() == {"n1": "in doubt"}, said
        assert "n1/pages/1: not looked at again: " in d.report("table").out
    box.holder, box.gone, box.session = "", 0, False
    d.w.hands.fault = lambda box, call, when: None
    said = d.resume()
    assert said.code == 0 and d.outcomes() == {"n1": "done"}, said


def test_r5_an_inventory_that_lost_a_node_in_hand_is_no_end_of_it(
    desk: Callable[..., Desk],
) -> None:
    d = desk("n1", "n2")
    begun(d)
    (d.project / "other.yaml").write_text("nodevet: 1\nhosts: {n2: {}}\n")
    said = d.resume("-i", d.project / "other.yaml")
    assert said.code == 3 and d.outcomes()["n1"] == "in doubt", said
    assert "the inventory does not name it" in said.out


def test_r5_what_was_locked_or_away_is_taken_up_by_a_resume(desk: Callable[..., Desk]) -> None:
    d = desk("n1", "n2")
    d.w.boxes["n1"].holder = "bob"
    d.w.boxes["n2"].gone = 9
    assert d.apply().code == 1
    assert set(d.outcomes().values()) == {"refused"}
    for box in d.w.boxes.values():
        box.holder, box.gone, box.session = "", 0, False
    assert d.resume().code == 0
    assert set(d.outcomes().values()) == {"done"}


# --- after a reboot -------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [1, 2])
def test_r8_while_systemd_is_still_starting_nothing_persists(
    world: Callable[..., World], late: int
) -> None:
    """What starts late sets it back: as the units come up, or a moment after all of them have."""
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    assert w.node(plan, w.journal()).outcome is Outcome.DONE
    box.reboot()
    calls = [0]

    def fault(box: Any, call: str, when: str) -> None:
        calls[0] += call == "probe" and when == "after"
        if calls[0] == late and call in ("act", "probe") and when == "after":
            box.kernel[world.thp] = "always"

    w.hands.fault = fault
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.FAILED, result
    assert box.everything() == before


def test_r8_the_wait_for_systemd_comes_before_the_check(world: Callable[..., World]) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    w.node(plan, w.journal())
    box.reboot()
    box.calls.clear()
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.PERSISTS, result
    assert box.calls == ["open", "lock", "probe", "act", "probe", "probe"]


def test_r8_what_is_late_has_until_boot_settle(world: Callable[..., World]) -> None:
    w = world()
    w.terms = msgspec.structs.replace(w.terms, boot_settle=30)
    plan, box, probes = w.plan(), w.boxes["n1"], [0]
    w.node(plan, w.journal())
    box.reboot()
    box.kernel[world.thp] = "always"

    def fault(box: Any, call: str, when: str) -> None:
        probes[0] += call == "probe" and when == "before"
        if probes[0] == 4:
            box.kernel[world.thp] = "never"

    w.hands.fault = fault
    assert w.node(plan, w.journal(), resume=True).outcome is Outcome.PERSISTS


def test_r8_killed_while_it_waits_is_still_after_a_reboot(world: Callable[..., World]) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    w.node(plan, w.journal())
    box.reboot()

    def kill(box: Any, call: str, when: str) -> None:
        if call == "act":
            raise world.killed

    w.hands.fault = kill
    with pytest.raises(world.killed):
        w.node(plan, w.journal(), resume=True)
    w.hands.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    assert w.node(plan, w.journal(), resume=True).outcome is Outcome.PERSISTS
