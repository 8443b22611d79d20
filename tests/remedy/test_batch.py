"""Live steps are written one after the other and verified together: one wait, one look, one probe.

Over a model whose every call can fail, with a step of files, a unit and a kernel value, and more of
one kernel value each.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from written_fixes import SET_NOW

from nodevet.fix.journal.journal import state
from nodevet.fix.journal.records import ActionEnd, StepVerified
from nodevet.fix.rollout.compare import StepContext
from nodevet.fixing.result import Outcome, Refusal

World = Any
DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
HUGE = "/proc/sys/vm/nr_hugepages"
CHECK = '''\
"""{name} is what the baseline says."""
from typing import ClassVar
from nodevet.evidence.memory import Memory
from nodevet.model import NODE, Check, CheckParams, compare, unknown
class Pages(CheckParams):
    bare: ClassVar[str] = "value"
    value: str
def judge(evidence, params):
    data = evidence[Memory].data
    if data is None or data.{field} is None:
        yield unknown(why="not read")
    else:
        yield compare(NODE, expected=params.value, actual=str(data.{field}))
CHECK = Check(params=Pages, reads=("memory.{field}",), judge=judge)
'''
MORE = {"defrag": ("thp_defrag", DEFRAG), "huge": ("hugepages_total", HUGE)}
SET = {"pages": "never", "defrag": "never", "huge": "8"}
IDS = [f"n1/{fix}/1" for fix in SET]


@pytest.fixture
def three(world: Callable[..., World]) -> Callable[[], World]:
    """A world where three live settings are wrong."""
    return lambda: world("n1", more={"CHECK": CHECK, "FIX": SET_NOW, "of": MORE}, **SET)


def values(box: Any, thp: str) -> list[str]:
    return [box.kernel[path] for path in (thp, DEFRAG, HUGE)]


def counted(w: World, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each thing is asked for from now on; the pauses, too."""
    found = dict.fromkeys(("compare", "wait"), 0)
    compare = StepContext.compare

    def comparing(self: StepContext, *rest: Any) -> Any:
        found["compare"] += 1
        return compare(self, *rest)

    def waiting(seconds: float) -> None:
        found["wait"] += 1

    patch.setattr(StepContext, "compare", comparing)
    patch.setattr(time, "sleep", waiting)
    return found


def test_three_live_steps_take_one_wait_one_compare_each_and_two_probes(
    three: Callable[[], World], monkeypatch: pytest.MonkeyPatch, world: Callable[..., World]
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    found = counted(w, monkeypatch)
    journal = w.journal()
    result = w.node(plan, journal)
    assert result.outcome is Outcome.CHANGED, result
    assert [step.outcome for step in result.steps] == [Outcome.CHANGED] * 3
    assert values(box, world.thp) == ["never", "never", "8"]
    calls = {call: box.calls.count(call) for call in ("probe", "look", "managers", "act")}
    # looks: all that come later before the first, one before each, one after all, one settled
    assert calls == {"probe": 2, "look": 6, "managers": 1, "act": 6}
    assert found == {"compare": 3, "wait": 1}
    assert all(
        step.before != step.after and step.verdicts == {"node": "ok"} for step in result.steps
    )
    kinds = [type(record) for record in journal.records]
    assert kinds.index(StepVerified) > max(
        place for place, kind in enumerate(kinds) if kind is ActionEnd
    ), "nothing is verified before all is written"


def test_a_step_that_reverts_within_the_settle_wait_is_reverted_and_the_others_stay(
    three: Callable[[], World], monkeypatch: pytest.MonkeyPatch, world: Callable[..., World]
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    waits = [0]

    def waiting(seconds: float) -> None:
        waits[0] += 1
        if waits[0] == 1:
            box.kernel[DEFRAG] = "always"

    monkeypatch.setattr(time, "sleep", waiting)
    result = w.node(plan, w.journal())
    first, second, third = result.steps
    assert result.outcome is second.outcome is Outcome.FAILED, result
    assert second.why == f"does not keep its new value: kernel {DEFRAG}"
    assert first.outcome is third.outcome is Outcome.CHANGED
    assert values(box, world.thp) == ["never", "madvise", "8"]


def test_a_step_that_undoes_another_of_its_batch_is_blamed(
    three: Callable[[], World], world: Callable[..., World]
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    act = box.act

    def undoing(action: Any) -> Any:
        done = act(action)
        if getattr(action, "path", "") == DEFRAG and action.value == "never":
            box.kernel[world.thp] = "always"
        return done

    box.act = undoing
    result = w.node(plan, w.journal())
    first, second, third = result.steps
    assert second.outcome is Outcome.FAILED and second.why == "it undoes n1/pages/1", second
    assert first.outcome is Outcome.FAILED and first.why == "undone by n1/defrag/1", first
    assert third.outcome is Outcome.NOT_ATTEMPTED
    assert values(box, world.thp) == ["always", "madvise", "0"]


def test_a_write_that_fails_ends_the_batch_and_earlier_steps_are_verified(
    three: Callable[[], World], world: Callable[..., World]
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    box.refused[DEFRAG] = "Invalid argument"
    result = w.node(plan, w.journal())
    outcomes = [step.outcome for step in result.steps]
    assert outcomes == [Outcome.CHANGED, Outcome.FAILED, Outcome.NOT_ATTEMPTED], result
    assert values(box, world.thp) == ["never", "madvise", "0"]


def test_a_stale_step_stops_the_batch_and_earlier_steps_are_verified(
    three: Callable[[], World], world: Callable[..., World]
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]

    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and box.writes == 4:
            box.kernel[DEFRAG] = "defer"

    w.executor.fault = fault
    result = w.node(plan, w.journal())
    assert (result.outcome, result.refusal) == (Outcome.PARTIAL, Refusal.STALE), result
    assert [step.outcome for step in result.steps] == [
        Outcome.CHANGED, Outcome.NOT_ATTEMPTED, Outcome.NOT_ATTEMPTED,
    ]  # fmt: skip
    assert values(box, world.thp) == ["never", "defer", "0"]


def test_steps_written_before_a_plan_expires_are_verified(
    three: Callable[[], World],
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]

    def closed(reboot: bool) -> str:
        return "the plan expired" if box.writes >= 5 else ""

    result = w.node(plan, w.journal(), closed=closed)
    assert (result.outcome, result.refusal) == (Outcome.PARTIAL, Refusal.STALE), result
    assert [step.outcome for step in result.steps][:2] == [Outcome.CHANGED] * 2
    assert box.writes == 5


def test_a_step_that_is_correct_already_does_not_split_a_batch(
    three: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    box.kernel[DEFRAG] = "never"
    found = counted(w, monkeypatch)
    result = w.node(plan, w.journal())
    outcomes = [step.outcome for step in result.steps]
    assert outcomes == [Outcome.CHANGED, Outcome.UNCHANGED, Outcome.CHANGED], result
    assert found["wait"] == 1 and box.calls.count("probe") == 2


# --- cut off ------------------------------------------------------------------------------------

CALLS = 17  # of an undisturbed run
POINTS = [(number, when) for number in range(1, CALLS + 1) for when in ("before", "after")]


def test_the_number_of_calls_of_a_batch_is_as_expected(three: Callable[[], World]) -> None:
    w = three()
    w.node(w.plan(), w.journal())
    assert len(w.boxes["n1"].calls) == CALLS, w.boxes["n1"].calls


def at(number: int, when: str, do: Callable[[Any], None]) -> Callable[..., None]:
    seen = {"calls": 0, "done": False}

    def fault(box: Any, call: str, now: str) -> None:
        seen["calls"] += now == "before"
        if seen["calls"] == number and now == when and not seen["done"]:
            seen["done"] = True
            do(box)

    return fault


def agrees(w: World, result: Any, before: Any, thp: str) -> None:
    """Each step is as its outcome says, and nothing is unknown."""
    box = w.boxes["n1"]
    kernel, files = before[1], before[0]
    for step, path, value in zip(result.steps, (thp, DEFRAG, HUGE), SET.values(), strict=True):
        good = step.outcome in (Outcome.CHANGED, Outcome.UNCHANGED)
        assert good or step.outcome in (Outcome.FAILED, Outcome.NOT_ATTEMPTED), result
        assert box.kernel[path] == (value if good else kernel[path]), (step, result)
    if result.steps[0].outcome is not Outcome.CHANGED:
        assert box.files == files and not box.units


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_batch_killed_at_any_call_can_be_resumed(
    three: Callable[[], World], world: Callable[..., World], number: int, when: str
) -> None:
    w = three()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()

    def kill(box: Any) -> None:
        raise world.killed

    w.executor.fault = at(number, when, kill)
    with suppress(world.killed):
        w.node(plan, w.journal())
    told = state(w.journal().records)
    written = [id for id in IDS if told.step(id).touched]
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    if number % 2:
        result = w.node(plan, w.journal(), resume=True)
        agrees(w, result, before, world.thp)
        assert result.outcome is Outcome.CHANGED, (written, result)
    else:
        result = w.back(plan)
        assert result.outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED), (written, result)
        assert box.everything() == before


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_the_result_agrees_with_the_node_wherever_the_session_is_cut(
    three: Callable[[], World], world: Callable[..., World], number: int, when: str
) -> None:
    w = three()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()
    w.executor.fault = at(number, when, world.cut)
    result = w.node(plan, w.journal())
    agrees(w, result, before, world.thp)


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_another_machine_that_answers_after_a_lost_session_is_not_written(
    three: Callable[[], World], world: Callable[..., World], number: int, when: str
) -> None:
    w = three()
    box, plan = w.boxes["n1"], w.plan()
    writes = [0]

    def swapped(box: Any) -> None:
        box.machine_id = "f" * 32
        box.boots += 1
        writes[0] = box.writes
        world.cut(box)

    w.executor.fault = at(number, when, swapped)
    result = w.node(plan, w.journal())
    done = number == CALLS and when == "after"
    assert box.writes == writes[0] or number <= 1, result
    if writes[0] and not done:
        assert result.outcome is Outcome.UNKNOWN and "another node" in result.why, result


def test_a_resume_verifies_steps_that_were_written_together(
    three: Callable[[], World], world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = three()
    box, plan = w.boxes["n1"], w.plan()

    def kill(box: Any) -> None:
        raise world.killed

    w.executor.fault = at(CALLS - 1, "before", kill)  # once all was written
    with suppress(world.killed):
        w.node(plan, w.journal())
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder, box.calls[:] = False, "", []
    found = counted(w, monkeypatch)
    result = w.node(plan, w.journal(), resume=True)
    assert [step.outcome for step in result.steps] == [Outcome.CHANGED] * 3, result
    assert found["wait"] == 1 and box.calls.count("probe") == 2
    assert box.calls.count("act") == 0


def test_a_resume_keeps_a_value_that_someone_set_meanwhile(
    three: Callable[[], World], world: Callable[..., World]
) -> None:
    w = three()
    box, plan = w.boxes["n1"], w.plan()

    def kill(box: Any) -> None:
        raise world.killed

    w.executor.fault = at(CALLS - 1, "before", kill)
    with suppress(world.killed):
        w.node(plan, w.journal())
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    box.kernel[DEFRAG] = "defer"
    result = w.node(plan, w.journal(), resume=True)
    first, second, third = result.steps
    assert second.outcome is Outcome.ROLLBACK_FAILED and "changed since" in second.why, second
    assert first.outcome is third.outcome is Outcome.CHANGED
    assert values(box, world.thp) == ["never", "defer", "8"]


# --- one that is reverted takes others with it ----------------------------------------------------


def changing(
    w: World, monkeypatch: pytest.MonkeyPatch, wait: int, values: Mapping[str, str]
) -> None:
    """Something else sets these in the settle wait of that number."""
    box, waits = w.boxes["n1"], [0]

    def waiting(seconds: float) -> None:
        waits[0] += 1
        if waits[0] == wait:
            box.kernel.update(values)

    monkeypatch.setattr(time, "sleep", waiting)


def test_another_machine_that_answers_while_steps_are_reverted_is_not_written(
    three: Callable[[], World], world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    changing(w, monkeypatch, 1, {DEFRAG: "madvise", HUGE: "0"})
    writes = [0]

    def swapped(box: Any) -> None:
        box.machine_id = "f" * 32
        box.boots += 1
        box.kernel[DEFRAG] = "defer"
        writes[0] = box.writes
        world.cut(box)

    w.executor.fault = at(CALLS + 1, "before", swapped)  # the look before the first is reverted
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.UNKNOWN and "another node" in result.why, result
    assert box.writes == writes[0] and box.kernel[DEFRAG] == "defer"
    assert box.calls.count("lock") == 2, "it is not tried again for each step"


def test_a_step_of_an_earlier_batch_that_a_revert_undoes_is_not_reported_changed(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"mode": "never", "risk": "idle"}
    w = world("n1", more={"CHECK": CHECK, "FIX": SET_NOW, "of": MORE}, **{**SET, "pages": pages})
    plan, box = w.plan(), w.boxes["n1"]
    before, act = box.everything(), box.act

    def undoing(action: Any) -> Any:
        done = act(action)
        if getattr(action, "path", "") == HUGE and action.value == "0":
            box.kernel[world.thp] = "always"
        return done

    box.act = undoing
    changing(w, monkeypatch, 2, {HUGE: "1"})
    result = w.node(plan, w.journal())
    first, second, third = result.steps
    assert third.outcome is Outcome.FAILED and second.outcome is Outcome.CHANGED, result
    assert first.outcome is Outcome.FAILED, first
    assert first.why == "does not hold without n1/huge/1", first
    assert box.files == before[0] and box.kernel[world.thp] == "always"


def test_a_resumed_step_is_reverted_if_a_step_that_it_needs_fails_later(
    three: Callable[[], World], world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one in hand when the controller was killed is judged before those that were written."""
    w = three()
    box, plan = w.boxes["n1"], w.plan()
    before, shown = box.everything(), box.evidence

    def needing() -> bytes:
        huge = box.kernel[HUGE]
        if box.kernel[DEFRAG] != "never":
            box.kernel[HUGE] = "0"
        document = shown()
        box.kernel[HUGE] = huge
        return document

    def kill(box: Any) -> None:
        raise world.killed

    box.evidence = needing
    w.executor.fault = at(CALLS - 3, "after", kill)  # the last action
    with suppress(world.killed):
        w.node(plan, w.journal())
    assert box.kernel[HUGE] == "8"
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    changing(w, monkeypatch, 3, {world.thp: "always", DEFRAG: "madvise"})
    result = w.node(plan, w.journal(), resume=True)
    first, second, third = result.steps
    assert first.outcome is second.outcome is third.outcome, result
    assert third.outcome is Outcome.FAILED, third
    assert third.why.endswith("does not hold without n1/pages/1, n1/defrag/1"), third
    assert box.everything() == before


# --- reset by something outside -------------------------------------------------------------------


def outside(box: Any, path: str, resets: Mapping[str, str]) -> None:
    """Something outside sets these right after this kernel file was written."""
    act = box.act

    def acting(action: Any) -> Any:
        done = act(action)
        if getattr(action, "path", "") == path:
            box.kernel.update(resets)
        return done

    box.act = acting


def test_e23_a_step_is_not_blamed_for_resources_it_cannot_write(
    three: Callable[[], World], world: Callable[..., World]
) -> None:
    """A sysctl of vm cannot set the mode of huge pages, however soon after it that moves."""
    w = three()
    plan, box = w.plan(), w.boxes["n1"]
    outside(box, HUGE, {world.thp: "always"})
    result = w.node(plan, w.journal())
    first, second, third = result.steps
    assert third.outcome is second.outcome is Outcome.CHANGED, result
    assert result.outcome is first.outcome is Outcome.FAILED, result
    assert first.why.endswith(f"{world.thp}: something else reset it, not n1/huge/1"), first
    assert values(box, world.thp) == ["always", "never", "8"]


def test_e23_a_reset_of_an_earlier_step_from_outside_fails_no_other_step(
    world: Callable[..., World],
) -> None:
    pages = {"mode": "never", "risk": "idle"}  # verified by itself, before the others
    w = world("n1", more={"CHECK": CHECK, "FIX": SET_NOW, "of": MORE}, **{**SET, "pages": pages})
    plan, box = w.plan(), w.boxes["n1"]
    outside(box, HUGE, {world.thp: "always"})
    result = w.node(plan, w.journal())
    first, second, third = result.steps
    assert third.outcome is second.outcome is Outcome.CHANGED, result
    assert first.outcome is Outcome.FAILED and "something else set it" in first.why, first


def test_e23_a_step_is_blamed_for_undoing_an_earlier_step_whose_value_it_can_set(
    world: Callable[..., World],
) -> None:
    pages = {"mode": "never", "risk": "idle"}
    w = world("n1", more={"CHECK": CHECK, "FIX": SET_NOW, "of": MORE}, **{**SET, "pages": pages})
    plan, box = w.plan(), w.boxes["n1"]
    outside(box, DEFRAG, {world.thp: "always"})
    result = w.node(plan, w.journal())
    first, second, _ = result.steps
    assert second.outcome is Outcome.FAILED and second.why == "it undoes n1/pages/1", second
    assert first.outcome is Outcome.FAILED and first.why == "undone by n1/defrag/1", first
