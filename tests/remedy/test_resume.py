"""A run that is taken up again: what was begun is looked at until its state is known."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from nodevet.fix.journal.journal import StepVerified, read, state
from nodevet.fix.rollout.apply import ApplyOrder, Stop, apply
from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.result import Outcome, Refusal, exit_code
from nodevet.fleet.executor import WorkError

World = Any
CommandRig = Any


def begun(d: CommandRig) -> Any:
    """The first node was verified as its controller was killed."""
    assert d.apply().code == 0
    records = read(d.run)
    d.cut(
        next(
            number
            for number, record in enumerate(records, 1)
            if isinstance(record, StepVerified) and record.step.startswith("n1/")
        )
    )
    return d.w.boxes["n1"]


def locked(box: Any, w: World) -> None:
    box.holder = "bob"


def rebooting(box: Any, w: World) -> None:
    box.gone = 9


def silent(box: Any, w: World) -> None:
    def fault(box: Any, call: str, when: str) -> None:
        if call == "probe":
            raise WorkError("timeout", "timed out after 60 s")

    w.executor.fault = fault


@pytest.mark.parametrize("trouble", [locked, rebooting, silent])
def test_r5_every_resume_reads_a_started_node_until_its_state_is_known(
    rig: Callable[..., CommandRig], trouble: Callable[..., None]
) -> None:
    d = rig("n1")
    box = begun(d)
    for _ in range(2):
        trouble(box, d.w)
        said = d.resume()
        assert said.code == 3 and d.outcomes() == {"n1": "unknown"}, said
        assert "pages/1: not checked again: " in d.report("table").out
    box.holder, box.gone, box.session = "", 0, False
    d.w.executor.fault = lambda box, call, when: None
    said = d.resume()
    assert said.code == 0 and d.outcomes() == {"n1": "changed"}, said


def test_r5_a_started_node_that_the_inventory_no_longer_names_is_unknown(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    begun(d)
    (d.project / "other.yaml").write_text("nodevet: 1\nhosts: {n2: {}}\n")
    said = d.resume("-i", d.project / "other.yaml")
    assert said.code == 3 and d.outcomes()["n1"] == "unknown", said
    assert "the inventory does not name it" in said.out


def test_r5_a_resume_continues_with_nodes_that_were_locked_or_away(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n1"].holder = "bob"
    d.w.boxes["n2"].gone = 9
    assert d.apply().code == 1
    assert set(d.outcomes().values()) == {"refused"}
    for box in d.w.boxes.values():
        box.holder, box.gone, box.session = "", 0, False
    assert d.resume().code == 0
    assert set(d.outcomes().values()) == {"changed"}


# --- after a reboot -------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [1, 2])
def test_r8_a_step_fails_if_a_late_unit_reverts_its_setting_after_a_reboot(
    world: Callable[..., World], late: int
) -> None:
    """What starts late sets it back: as the units come up, or a moment after all of them have."""
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    box.reboot()
    calls = [0]

    def fault(box: Any, call: str, when: str) -> None:
        calls[0] += call == "probe" and when == "after"
        if calls[0] == late and call in ("act", "probe") and when == "after":
            box.kernel[world.thp] = "always"

    w.executor.fault = fault
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
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert box.calls == ["open", "lock", "probe", "act", "probe", "probe"]


def test_r8_late_settings_have_until_boot_settle(world: Callable[..., World]) -> None:
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

    w.executor.fault = fault
    assert w.node(plan, w.journal(), resume=True).outcome is Outcome.VERIFIED_AFTER_REBOOT


def test_r8_a_resume_killed_while_it_waits_still_verifies_after_a_reboot(
    world: Callable[..., World],
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    w.node(plan, w.journal())
    box.reboot()

    def kill(box: Any, call: str, when: str) -> None:
        if call == "act":
            raise world.killed

    w.executor.fault = kill
    with pytest.raises(world.killed):
        w.node(plan, w.journal(), resume=True)
    w.executor.fault = lambda box, call, when: None
    box.session, box.holder = False, ""
    assert w.node(plan, w.journal(), resume=True).outcome is Outcome.VERIFIED_AFTER_REBOOT


# --- interrupted steps ----------------------------------------------------------------------------

POINTS = [(number, when) for number in range(1, 13) for when in ("before", "after")]


def killing(world: Any, number: int, when: str) -> Callable[..., None]:
    """Ends the controller at one call."""
    calls = [0]

    def kill(box: Any, call: str, now: str) -> None:
        calls[0] += now == "before"
        if calls[0] == number and now == when:
            raise world.killed

    return kill


def free(w: World) -> Any:
    """The killed controller's sessions end."""
    w.executor.fault = lambda box, call, when: None
    for box in w.boxes.values():
        box.session, box.holder = False, ""
    return w.boxes["n1"]


@pytest.mark.parametrize(("number", "when"), POINTS)
def test_r15_an_interrupted_step_is_completed_wherever_it_was_killed(
    world: Callable[..., World], number: int, when: str
) -> None:
    w = world()
    plan, before = w.plan(), w.boxes["n1"].everything()
    w.executor.fault = killing(world, number, when)
    with pytest.raises(world.killed):
        w.node(plan, w.journal())
    box = free(w)
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.CHANGED, result
    assert box.kernel[world.thp] == "never" and box.units
    assert w.back(plan).outcome is Outcome.ROLLED_BACK and box.everything() == before


@pytest.mark.parametrize("seed", range(30))
def test_r15_an_interrupted_step_is_completed_even_if_its_resumes_are_killed(
    world: Callable[..., World], seed: int
) -> None:
    w, dice = world(pages="never", ecc_mode=True), random.Random(seed)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    plan, before = w.plan(), w.boxes["n1"].everything()
    for _ in range(5):
        w.executor.fault = killing(world, dice.randint(3, 30), dice.choice(["before", "after"]))
        with suppress(world.killed):
            w.node(plan, w.journal(), resume=True)
        free(w)
    result = w.node(plan, w.journal(), resume=True)
    assert [step.outcome for step in result.steps] == [Outcome.CHANGED, Outcome.PENDING], result
    assert w.back(plan).outcome is Outcome.ROLLED_BACK
    assert w.boxes["n1"].everything() == before


def busy(w: World) -> None:
    w.boxes["n1"].processes = [{"pid": 7, "command": "job", "gpu_minors": [0]}]


def owned(w: World) -> None:
    w.boxes["n1"].owners = {"kernel /sys/kernel/mm/transparent_hugepage/enabled": ("unit tuned",)}


def rebooted(w: World) -> None:
    w.boxes["n1"].reboot()


@pytest.mark.parametrize("change", [busy, owned, rebooted])
def test_r15_a_step_is_restored_if_a_fresh_look_does_not_allow_it(
    world: Callable[..., World], change: Callable[[World], None]
) -> None:
    w = world(pages={"mode": "never", "risk": "idle"})
    plan, before = w.plan(), w.boxes["n1"].everything()
    w.executor.fault = killing(world, 7, "after")
    with pytest.raises(world.killed):
        w.node(plan, w.journal())
    box = free(w)
    change(w)
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.REFUSED and box.everything() == before, result
    assert [step.outcome for step in result.steps] == [Outcome.NOT_ATTEMPTED]


@pytest.mark.parametrize("number", range(3, 13))
def test_r15_the_run_continues_after_an_interrupted_canary(
    world: Callable[..., World], number: int
) -> None:
    w = world("n1", "n2", "n3")
    plan = w.plan()
    w.executor.fault = killing(world, number, "before")
    with pytest.raises(world.killed):
        w.node(plan, w.journal(), canary=True)
    free(w)
    order = ApplyOrder(
        plan=plan,
        context=w.context,
        baselines={"b": w.baseline},
        hosts=frozenset(w.boxes),
        terms=w.terms,
    )
    journal = w.journal()
    with Stop() as stop:
        earlier = state(journal.records)
        results, why = apply(order, w.executor, journal, Limits(), earlier=earlier, stop=stop)
    assert [result.outcome for result in results] == [Outcome.CHANGED] * 3 and not why, results


# --- partly done ----------------------------------------------------------------------------------


def test_r15_a_node_with_a_step_that_stays_is_reported_as_partial(
    world: Callable[..., World],
) -> None:
    w = world(pages="never", ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    plan, box = w.plan(), w.boxes["n1"]

    def taken(box: Any, call: str, when: str) -> None:
        if box.writes == 4:
            gpu = box.gpus[0]["uuid"]
            box.owners = {f"gpu {gpu}:ecc_pending": ("cron /etc/cron.d/site",)}

    w.executor.fault = taken
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.PARTIAL and exit_code([result]) == 1, result
    assert result.refusal is Refusal.MANAGER and "cron /etc/cron.d/site" in result.why
    assert result.why.endswith("n1/pages/1 is changed, and stays") and box.writes == 4


def test_r15_a_node_that_is_partly_rolled_back_is_reported_as_partial(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    d.w.boxes["n1"].files["/etc/tmpfiles.d/nodevet-pages.conf"] = ("mine\n", 0o644)
    said = d.rollback()
    assert said.code == 1 and d.outcomes() == {"n1": "partial"}, said
    assert "refused" not in said.out and "it was changed since; not touched" in said.out
