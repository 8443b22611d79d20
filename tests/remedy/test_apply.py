"""One node's sequence, over a model whose every call can fail; then fleets of them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from nodevet.fix.events import HostEnded
from nodevet.fix.journal.journal import state
from nodevet.fix.rollout.apply import ApplyOrder, Stop, apply
from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.result import Outcome, Refusal, exit_code

World = Any


def test_a_step_is_done_when_the_check_says_so(world: Callable[..., World]) -> None:
    w = world()
    result = w.node(w.plan(), w.journal())
    assert result.outcome is Outcome.CHANGED, result
    (step,) = result.steps
    box = w.boxes["n1"]
    assert box.kernel[world.thp] == "never" and step.expected == "never"
    assert box.units["nodevet-pages.service"]["active"] == "active"
    assert [one.ok for one in step.ran] == [True] * 4
    assert step.before != step.after and len(step.before) == len(step.after) == 4
    assert step.verdicts == {"node": "ok"}
    assert not box.holder and not box.session, "the lock is let go"
    assert w.kept == [("n1", "before"), ("n1", "after")]


def test_correct_settings_are_not_written(world: Callable[..., World]) -> None:
    w = world()
    plan = w.plan()
    w.boxes["n1"].kernel[world.thp] = "never"
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.UNCHANGED and not w.boxes["n1"].writes


def busy(box: Any) -> None:
    box.processes = [{"pid": 7, "command": "python3", "gpu_minors": [0]}]


def keeper(box: Any) -> None:
    unit = "nvidia-persistenced.service"
    box.processes = [{"pid": 7, "command": "nvidia-persiste", "unit": unit, "gpu_minors": [0, 1]}]


def impostor(box: Any) -> None:
    box.processes = [{"pid": 7, "command": "nvidia-persiste", "unit": "x", "gpu_minors": [0]}]


REFUSED: dict[str, tuple[Any, Refusal, str]] = {
    "rebooted": (lambda box: box.reboot(), Refusal.STALE, "rebooted since"),
    "another": (lambda box: setattr(box, "machine_id", "f" * 32), Refusal.STALE, "another node"),
    "drifted": (
        lambda box: box.kernel.update({"/sys/kernel/mm/transparent_hugepage/enabled": "madvise"}),
        Refusal.STALE,
        "is madvise now, and was always when planned",
    ),
    "file": (
        lambda box: box.files.update({"/etc/tmpfiles.d/nodevet-pages.conf": ("x", 0o644)}),
        Refusal.STALE,
        "is a file of mode 644, and was absent when planned",
    ),
    "locked": (lambda box: setattr(box, "holder", "bob"), Refusal.LOCKED, "locked by bob"),
    "owner": (
        lambda box: box.owners.update(
            {"kernel /sys/kernel/mm/transparent_hugepage/enabled": ("unit tuned.service",)}
        ),
        Refusal.MANAGER,
        "also managed by unit tuned.service; disable it there, or drop pages from `fix`",
    ),
    "gone": (lambda box: setattr(box, "gone", 9), Refusal.UNREACHABLE, "connection refused"),
    "busy": (busy, Refusal.PRECONDITION, "GPU 0 in use by python3 (pid 7)"),
    "impostor": (impostor, Refusal.PRECONDITION, "GPU 0 in use by nvidia-persiste"),
    "untold": (
        lambda box: setattr(box, "complete", False),
        Refusal.PRECONDITION,
        "cannot tell for sure",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_node_is_not_changed(world: Callable[..., World], name: str) -> None:
    change, refusal, told = REFUSED[name]
    w = world(pages={"mode": "never", "risk": "idle"})
    plan, box = w.plan(), w.boxes["n1"]
    change(box)
    before = box.everything()
    result = w.node(plan, w.journal())
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, refusal), result
    assert told in result.why
    assert box.everything() == before and not box.writes
    assert exit_code([result]) == 1


def test_nvidia_persistenced_does_not_count_as_a_user_of_a_gpu(world: Callable[..., World]) -> None:
    w = world(pages={"mode": "never", "risk": "idle"})
    plan = w.plan()
    keeper(w.boxes["n1"])
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED


def test_live_steps_run_under_load_and_idle_steps_need_only_their_own_gpus(
    world: Callable[..., World],
) -> None:
    for risk, minor in (("live", 0), ("idle", 1)):
        w = world(pages={"mode": "never", "risk": risk})
        plan = w.plan()
        w.boxes["n1"].processes = [{"pid": 7, "command": "job", "gpu_minors": [minor]}]
        assert w.node(plan, w.journal()).outcome is Outcome.CHANGED


def test_a_plan_of_a_changed_baseline_is_stale(world: Callable[..., World]) -> None:
    w = world()
    result = w.node(w.plan(), w.journal(), closed=lambda reboot: "the baseline b was changed")
    assert result.outcome is Outcome.REFUSED and not w.boxes["n1"].calls


@pytest.mark.parametrize("hook", ["", "false", "/no/such/hook", "true"])
def test_drain_needs_the_hook(world: Callable[..., World], hook: str) -> None:
    w = world(pages={"mode": "never", "risk": "drain"})
    w.terms = msgspec.structs.replace(w.terms, drain_hook=hook)
    result = w.node(w.plan(), w.journal())
    if hook == "true":
        assert result.outcome is Outcome.CHANGED
    else:
        assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.PRECONDITION)
        assert not w.boxes["n1"].writes


@pytest.mark.parametrize(
    "key",
    [
        "/etc/tmpfiles.d/nodevet-pages.conf",
        "nodevet-pages.service",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ],
)
def test_a_step_whose_write_the_node_refuses_is_restored(
    world: Callable[..., World], key: str
) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    box.refused[key] = "No space left on device"
    before = box.everything()
    if key == "nodevet-pages.service":  # so that it can be put back
        box.refused.clear()
        act = box.act
        box.act = lambda action: (
            act(action)
            if not getattr(action, "enabled", None)
            else type(act(action))(ok=False, code=1, output="No space left on device")
        )
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.FAILED, result
    assert "No space left" in result.why
    assert box.everything() == before


def test_a_setting_that_reverts_by_itself_is_restored(world: Callable[..., World]) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()

    def revert(box: Any) -> None:
        if box.looks == 3:  # before, after, and a moment later
            box.kernel[world.thp] = "always"

    box.revert = revert
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.FAILED
    assert "does not keep its new value" in result.why
    assert box.everything() == before


def test_a_failed_rollback_is_reported_loudly(world: Callable[..., World]) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()

    def revert(box: Any) -> None:
        if box.looks == 3:
            box.kernel[world.thp] = "madvise"
            box.refused[world.thp] = "Invalid argument"

    box.revert = revert
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.ROLLBACK_FAILED, result
    assert "is madvise, and was always" in result.why
    assert "Invalid argument" in result.why
    assert exit_code([result]) == 3


# --- cut off ------------------------------------------------------------------------------------


CALLS = 12  # of an undisturbed run
POINTS = [(number, when) for number in range(1, CALLS + 1) for when in ("before", "after")]


def test_the_number_of_calls_of_a_run_is_as_expected(world: Callable[..., World]) -> None:
    w = world()
    assert w.node(w.plan(), w.journal()).outcome is Outcome.CHANGED
    assert len(w.boxes["n1"].calls) == CALLS, w.boxes["n1"].calls


def whole(box: Any, thp: str) -> bool:
    """Whether everything that the step does is in place."""
    unit = {"enabled": "enabled", "active": "active", "masked": False, "fragment": ""}
    return (
        box.kernel[thp] == "never"
        and box.files["/etc/tmpfiles.d/nodevet-pages.conf"][0].endswith("never\n")
        and box.units.get("nodevet-pages.service") == unit
    )


def at(world: Any, number: int, when: str, do: Callable[[Any], None]) -> Callable[..., None]:
    """A fault at one call of a box."""
    seen = {"calls": 0, "done": False}

    def fault(box: Any, call: str, now: str) -> None:
        seen["calls"] += now == "before"
        if seen["calls"] == number and now == when and not seen["done"]:
            seen["done"] = True
            do(box)

    return fault


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_session_cut_at_any_call_leaves_the_node_changed_or_restored(
    world: Callable[..., World], number: int, when: str, held: int
) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()
    box.held = held  # the node takes a while to miss the session
    w.executor.fault = at(world, number, when, world.cut)
    journal = w.journal()
    result = w.node(plan, journal)
    if result.outcome is Outcome.CHANGED:
        assert whole(box, world.thp)
    else:
        assert result.outcome in (Outcome.FAILED, Outcome.REFUSED), result
        assert box.everything() == before


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_node_that_does_not_come_back_is_unknown(
    world: Callable[..., World], number: int, when: str
) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()

    def lose(box: Any) -> None:
        box.gone = 99
        world.cut(box)

    w.executor.fault = at(world, number, when, lose)
    result = w.node(plan, w.journal())
    if box.writes:
        assert result.outcome is Outcome.UNKNOWN, result
    else:
        assert result.outcome in (Outcome.REFUSED, Outcome.UNKNOWN)
        assert box.everything() == before
    assert exit_code([result]) == (1 if result.outcome is Outcome.REFUSED else 3)
    # and later it is back
    box.gone = 0
    w.executor.fault = lambda box, call, when: None
    again = w.node(plan, w.journal(), resume=True)
    assert again.outcome in (Outcome.CHANGED, Outcome.FAILED), again
    if again.outcome is Outcome.FAILED:
        assert box.everything() == before


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_a_run_killed_at_any_call_can_be_resumed(
    world: Callable[..., World], number: int, when: str
) -> None:
    w = world()
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()

    def kill(box: Any) -> None:
        raise world.killed

    w.executor.fault = at(world, number, when, kill)
    with suppress(world.killed):
        w.node(plan, w.journal())
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    result = w.node(plan, w.journal(), resume=True)
    if result.outcome is Outcome.FAILED:
        assert box.everything() == before
        assert state(w.journal().records).step("n1/pages/1").touched is False
    else:
        assert result.outcome is Outcome.CHANGED, result
        assert whole(box, world.thp)


def test_a_resume_shows_what_the_killed_controller_did(world: Callable[..., World]) -> None:
    """It was killed once the step was verified, and before the node's result was kept."""
    w = world()
    plan = w.plan()
    (first,) = w.node(plan, w.journal()).steps
    (step,) = w.node(plan, w.journal(), resume=True).steps
    assert step.outcome is first.outcome is Outcome.CHANGED
    assert step.before == first.before and step.after == first.after != first.before
    assert [one.action for one in step.ran] == list(plan.steps[0].actions)
    assert all(one.ok for one in step.ran)


def test_a_node_rebooted_during_an_action_ends_changed_or_restored(
    world: Callable[..., World],
) -> None:
    """The node reboots under an action: what outlasted it is put back, or completed."""
    for number in range(1, 15):
        w = world()
        box, plan = w.boxes["n1"], w.plan()
        before = box.everything()

        def crash(box: Any) -> None:
            box.reboot()
            world.cut(box)

        w.executor.fault = at(world, number, "after", crash)
        result = w.node(plan, w.journal())
        if result.outcome is Outcome.CHANGED:
            assert whole(box, world.thp)
        else:
            assert result.outcome in (Outcome.FAILED, Outcome.REFUSED), result
            assert box.everything() == before


# --- reboot -------------------------------------------------------------------------------------


def rebooting(w: World) -> None:
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")


def test_persistence_is_reported_after_a_reboot(world: Callable[..., World]) -> None:
    w = world()
    rebooting(w)
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and result.rebooted
    assert w.boxes["n1"].boots == 2


def test_a_setting_that_does_not_persist_is_restored(world: Callable[..., World]) -> None:
    w = world()
    rebooting(w)
    box, plan = w.boxes["n1"], w.plan()
    before = box.everything()
    reboot = box.reboot

    def forgets() -> None:
        reboot()
        box.kernel[world.thp] = "madvise"  # something at boot sets it

    box.reboot = forgets
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED
    assert "not persistent across reboot" in result.why
    assert box.everything() == before


def test_a_node_that_does_not_come_back_from_its_reboot_is_unknown(
    world: Callable[..., World],
) -> None:
    w = world()
    rebooting(w)

    def fault(box: Any, call: str, when: str) -> None:
        if call == "reboot":
            box.gone = 99
            world.cut(box)

    w.executor.fault = fault
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN and "the reboot was requested" in result.why


def test_a_step_effective_after_a_reboot_is_pending_until_then(world: Callable[..., World]) -> None:
    w = world(ecc_mode=True)
    rebooting(w)
    plan = w.plan()
    journal = w.journal()
    result = w.node(plan, journal)
    assert result.outcome is Outcome.PENDING, result
    assert "effective after a reboot" in result.why
    again = w.node(plan, w.journal("again"))
    assert again.outcome is Outcome.PENDING and w.boxes["n1"].writes == 2
    assert set(result.steps[0].verdicts.values()) == {"fail"}, "as it is now"
    w = world(ecc_mode=True)
    rebooting(w)
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT
    assert set(result.steps[0].verdicts.values()) == {"ok"}


# --- fleets -------------------------------------------------------------------------------------


def run(w: World, limits: Limits, **options: Any) -> Any:
    plan = w.plan()
    order = ApplyOrder(
        plan=plan,
        context=w.context,
        baselines={"b": w.baseline},
        hosts=frozenset(w.boxes),
        terms=w.terms,
    )
    journal = w.journal()
    with Stop() as stop:
        return apply(order, w.executor, journal, limits, stop=options.pop("stop", stop), **options)


def test_a_failed_canary_leaves_the_rest_untouched(world: Callable[..., World]) -> None:
    w = world(*(f"n{number}" for number in range(8)))
    w.boxes["n0"].refused[world.thp] = "Invalid argument"
    results, why = run(w, Limits(canary=1, batch=4, max_fail=5))
    assert [result.outcome for result in results] == [Outcome.FAILED] + [Outcome.NOT_ATTEMPTED] * 7
    assert why == "the canary failed" == results[3].why
    assert all(not box.calls for name, box in w.boxes.items() if name != "n0")


def test_the_budget_stops_a_run_and_every_node_is_accounted_for(
    world: Callable[..., World],
) -> None:
    names = [f"n{number:02}" for number in range(32)]
    w = world(*names)
    for name in names[5::5]:  # six of 32
        w.boxes[name].refused[world.thp] = "Invalid argument"
    results, why = run(w, Limits(canary=1, batch=2, max_fail=1))
    outcomes = [result.outcome for result in results]
    assert [result.host for result in results] == names
    assert outcomes.count(Outcome.FAILED) in (2, 3) and "nodes failed" in why
    assert outcomes.count(Outcome.NOT_ATTEMPTED) > 15
    for result in results:
        box = w.boxes[result.host]
        assert (box.kernel[world.thp] == "never") == (result.outcome is Outcome.CHANGED)
        assert bool(box.calls) == (result.outcome is not Outcome.NOT_ATTEMPTED)


def test_a_canary_that_is_refused_is_replaced(world: Callable[..., World]) -> None:
    w = world("n1", "n2", "n3")
    w.boxes["n1"].holder = "bob"
    results, why = run(w, Limits(canary=1, batch=2))
    assert [one.outcome for one in results] == [Outcome.REFUSED, Outcome.CHANGED, Outcome.CHANGED]
    assert [one.canary for one in results] == [True, True, False] and not why


def test_no_further_node_is_started_after_ctrl_c(world: Callable[..., World]) -> None:
    w = world("n1", "n2", "n3")
    stop = Stop()

    def heard(event: Any) -> None:
        stop.asked = stop.asked or isinstance(event, HostEnded)

    results, why = run(w, Limits(canary=1, batch=1), on_event=heard, stop=stop)
    assert [one.outcome for one in results] == [Outcome.CHANGED] + [Outcome.NOT_ATTEMPTED] * 2
    assert why == "interrupted"


def test_no_more_than_a_batch_at_a_time(world: Callable[..., World]) -> None:
    w = world(*(f"n{number}" for number in range(9)))
    most, running, turn = 0, set(), threading.Lock()

    def fault(box: Any, call: str, when: str) -> None:
        nonlocal most
        with turn:
            if call == "lock" and when == "after":
                running.add(box.name)
            most = max(most, len(running))
            if call == "probe" and box.writes:
                running.discard(box.name)

    w.executor.fault = fault
    results, _ = run(w, Limits(canary=1, batch=3))
    assert {one.outcome for one in results} == {Outcome.CHANGED} and 1 <= most <= 3


def test_an_internal_error_gives_the_node_an_unknown_outcome(world: Callable[..., World]) -> None:
    w = world("n1", "n2")

    def fault(box: Any, call: str, when: str) -> None:
        raise ZeroDivisionError("oops")

    w.executor.fault = fault
    results, _ = run(w, Limits())
    assert results[0].outcome is Outcome.UNKNOWN and "oops" in results[0].why
    assert results[1].outcome is Outcome.NOT_ATTEMPTED
