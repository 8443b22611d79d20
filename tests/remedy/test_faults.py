"""What real nodes did that a run must end well with, over the model: fast, and point by point."""

from collections.abc import Callable
from typing import Any

import msgspec

from nodevet.fix.rollout.session import SessionTerms
from nodevet.fixing.result import Outcome, Refusal
from nodevet.resource.file import WriteFile

World = Any
CONF = "/etc/tmpfiles.d/nodevet-pages.conf"


def both(world: Callable[..., World]) -> World:
    """A world with a step of files and units, and one of the driver after it."""
    w = world(pages="never", ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    return w


def test_no_step_is_started_after_an_unplanned_reboot(world: Callable[..., World]) -> None:
    """The first step was made so that it outlasts one; the second was planned for that boot."""
    w = both(world)
    box, plan = w.boxes["n1"], w.plan()

    def fault(box: Any, call: str, when: str) -> None:
        if call == "look" and when == "before" and box.writes == 4 and box.boots == 1:
            box.reboot()
            world.cut(box)

    w.executor.fault = fault
    result = w.node(plan, w.journal())
    assert (result.outcome, result.refusal) == (Outcome.PARTIAL, Refusal.STALE), result
    assert "rebooted since the plan was made" in result.why
    assert "n1/pages/1 is changed, and stays" in result.why
    assert [step.outcome for step in result.steps][:2] == [Outcome.CHANGED, Outcome.NOT_ATTEMPTED]
    assert not any(gpu["ecc"][1] for gpu in box.gpus) and box.writes == 4


def test_a_failed_node_says_which_of_its_steps_stay(world: Callable[..., World]) -> None:
    w = both(world)
    w.boxes["n1"].refused["nvidia-smi"] = "Insufficient Permissions"
    result = w.node(w.plan(), w.journal())
    assert result.outcome is Outcome.FAILED, result
    assert result.why.endswith("; n1/pages/1 is changed, and stays")


def test_a_setting_reset_late_in_the_boot_does_not_persist(world: Callable[..., World]) -> None:
    w = world()
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()

    def fault(box: Any, call: str, when: str) -> None:
        if call == "probe" and when == "after" and box.boots == 2 and "act" in box.calls[-2:]:
            box.kernel[world.thp] = "always"  # once the first probe after the boot was fine

    w.executor.fault = fault
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED and "not persistent across reboot" in result.why, result
    assert box.everything() == before


def test_a_failed_rollback_is_reported_as_failed(world: Callable[..., World]) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    act, box.act = box.act, None

    def refuse(action: Any) -> Any:
        ended = act(action)
        at_it = getattr(action, "path", "") == world.thp and action.value == "never"
        return type(ended)(ok=False, code=1, output="Input/output error") if at_it else ended

    def revert(box: Any) -> None:
        if box.looks == 4:  # before; before it is put back; after that; and a moment later
            box.kernel[world.thp] = "madvise"

    box.act, box.revert = refuse, revert
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.ROLLBACK_FAILED, result
    assert "Input/output error; rollback failed" in result.why
    assert "is madvise, and was always" in result.why


def test_leftovers_of_a_crash_are_removed(world: Callable[..., World]) -> None:
    """The node went down in the middle of a write: the file is not there, a part of it is."""
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    before, part = box.everything(), "/etc/tmpfiles.d/.nodevet-pages.conf.nodevet.abcdef"
    act = box.act

    def crash(action: Any) -> Any:
        if isinstance(action, WriteFile) and action.path == CONF:
            box.files.pop(part, None)  # what any write or removal does first
            if action.content is not None:
                box.reboot()
                box.files[part] = ("w /sy", 0o600)
                world.cut(box)
        return act(action)

    box.act = crash
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.FAILED and box.everything() == before, result


def test_the_default_settle_time_is_at_least_five_seconds() -> None:
    """A look takes its time, and what reverts may count from when it saw the change."""
    assert SessionTerms(who="").settle >= 5
