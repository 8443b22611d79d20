"""Steps that are tried for one boot, and kept once their check passed after it.

In this model of a node one file sets the value at one boot, as GRUB's menu of one boot does, and
another file at every boot.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace
from written_fixes import ALWAYS, ONCE, TRIAL

from nodevet.fix.journal.records import ActionBegin, ActionEnd, HostEnd
from nodevet.fix.plan.contradictions import contradictions
from nodevet.fix.settings import Rollout
from nodevet.fixing.result import Outcome, Refusal
from nodevet.fleet.executor import WorkError

World = Any
BY_HAND = ("# by hand\n", 0o644)


class OneBoot:
    """Boots of a box: the file of one boot counts at the first boot after it was written."""

    def __init__(self, box: Any) -> None:
        self.box, self.boot, self.tried = box, box.reboot, False
        box.reboot = self.reboot

    def reboot(self) -> None:
        files = self.box.files
        if self.tried:
            self.box.files = {path: text for path, text in files.items() if path != ONCE}
        self.tried = ONCE in files
        self.boot()
        self.box.files = files


def with_trial(w: World) -> World:
    """The world, whose fix keeps its change after a proof; its run drains the node and reboots
    it."""
    (w.folder / "fixes" / "pages.py").write_text(TRIAL)
    w.catalog = type(w.catalog)([w.folder / "checks"], [w.folder / "fixes"])
    w.terms = replace(w.terms, reboot=True, drain_hook="true")
    OneBoot(w.boxes["n1"])
    return w


@pytest.fixture
def trial(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    """A world whose fix keeps its change after a proof; its run drains the node and reboots it."""

    monkeypatch.setattr("nodevet.fix.rollout.boot.time.sleep", lambda seconds: None)

    def make() -> World:
        return with_trial(world())

    return make


def applied(w: World, plan: Any, *, resume: bool = False) -> Any:
    return w.node(plan, w.journal(), reboot=True, resume=resume)


def later_boots(w: World) -> set[str]:
    """The value after each of two more boots."""
    box, values = w.boxes["n1"], set()
    for _ in range(2):
        box.reboot()
        values |= {value for path, value in box.kernel.items() if path.endswith("page/enabled")}
    return values


def test_a_trial_setting_is_kept_after_its_check_passed(trial: Callable[[], World]) -> None:
    w = trial()
    plan = w.plan()
    result = applied(w, plan)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert [ran.action.label for ran in result.steps[0].ran] == [
        *(f"write {ONCE}", f"remove {ONCE}", f"write {ALWAYS}")
    ]
    assert later_boots(w) == {"never"} and ONCE not in w.boxes["n1"].files
    assert w.back(plan).outcome is Outcome.PENDING
    assert later_boots(w) == {"always"} and ALWAYS not in w.boxes["n1"].files


def test_a_trial_setting_that_is_not_active_after_the_boot_is_not_kept(
    trial: Callable[[], World],
) -> None:
    """The node came back with the earlier setting, as after a power cycle of a node that hung."""
    w = trial()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    hang = box.reboot

    def twice() -> None:
        hang()
        hang()

    box.reboot = twice
    result = applied(w, plan)
    assert result.outcome is Outcome.FAILED and "not persistent across reboot" in result.why
    assert box.everything() == before and later_boots(w) == {"always"}


def test_a_change_that_cannot_be_kept_is_reverted(trial: Callable[[], World]) -> None:
    w = trial()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    box.refused[ALWAYS] = "No space left on device"
    result = applied(w, plan)
    assert result.outcome is Outcome.FAILED and "it cannot be kept" in result.why, result
    assert "No space left" in result.why and box.everything() == before
    assert later_boots(w) == {"always"}


def test_a_trial_setting_without_its_reboot_is_reverted(trial: Callable[[], World]) -> None:
    w = trial()
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    refused = w.node(plan, w.journal())
    assert refused.refusal is Refusal.PRECONDITION and box.writes == 0, refused
    answers = iter(["", "", "the plan is no longer approved"])
    result = w.node(
        plan, w.journal("other"), reboot=True, closed=lambda reboot: next(answers) if reboot else ""
    )
    assert result.outcome is Outcome.FAILED and "not verified, because" in result.why, result
    assert box.everything() == before and box.boots == 1
    rollout = Rollout(reboot=False)
    (why,) = contradictions(replace(plan, rollout=rollout))
    assert "but the plan reboots no host" in why


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("trouble", ["killed", "cut"])
def test_a_trial_setting_is_kept_wherever_the_controller_or_session_ends(
    world: Callable[..., World], trial: Callable[[], World], when: str, trouble: str
) -> None:
    """At each call of a run. Between proof and keeping, a resumed run does not reboot again."""
    for last in count(1):
        w = trial()
        plan, box = w.plan(), w.boxes["n1"]
        calls = [0]

        def fault(box: Any, call: str, at: str, last: int = last, calls: Any = calls) -> None:
            calls[0] += at == when
            if calls[0] == last and at == when:
                calls[0] += 1
                if trouble == "killed":
                    raise world.killed
                if call == "reboot":
                    raise WorkError("unreachable", "it did not come back")
                world.cut(box)

        w.executor.fault = fault
        try:
            result = applied(w, plan)
        except world.killed:
            result = None
        w.executor.fault = lambda box, call, when: None
        if calls[0] < last:
            break
        box.holder = ""
        if result is None or result.outcome is not Outcome.VERIFIED_AFTER_REBOOT:
            result = applied(w, plan, resume=True)
        is_done = result.outcome is Outcome.VERIFIED_AFTER_REBOOT
        kept, values = ALWAYS in box.files, later_boots(w)
        assert (kept, values) == ((True, {"never"}) if is_done else (False, {"always"})), last
        assert ONCE not in box.files, (last, result)
        assert is_done or result.outcome in (Outcome.REFUSED, Outcome.FAILED), (last, result)
    assert last > 10


@pytest.mark.parametrize("moment", ["before its record", "after its record", "before the end"])
def test_a_run_killed_before_it_keeps_a_verified_setting_needs_no_other_reboot(
    world: Callable[..., World], trial: Callable[[], World], moment: str
) -> None:
    """Of the first action of keeping, and of the end of the node."""
    w = trial()
    plan, box, journal = w.plan(), w.boxes["n1"], w.journal()
    write = journal.write

    def killed(record: Any) -> Any:
        is_first = isinstance(record, ActionBegin) and record.action == 1
        is_due = isinstance(record, HostEnd) if moment == "before the end" else is_first
        if moment == "after its record" or not is_due:
            write(record)
        if is_due:
            raise world.killed

    journal.write = killed
    with pytest.raises(world.killed):
        w.node(plan, journal, reboot=True)
    box.holder = ""
    assert applied(w, plan, resume=True).outcome is Outcome.VERIFIED_AFTER_REBOOT
    assert box.boots == 2 and later_boots(w) == {"never"}


@pytest.mark.parametrize("action", [1, 2])
def test_a_file_that_a_person_changed_before_a_resume_is_not_overwritten(
    world: Callable[..., World], trial: Callable[[], World], action: int
) -> None:
    """A person writes the file that keeping would write, while no controller runs."""
    w = trial()
    plan, box, journal = w.plan(), w.boxes["n1"], w.journal()
    write = journal.write

    def killed(record: Any) -> Any:
        if isinstance(record, ActionBegin) and record.action == action:
            raise world.killed
        write(record)

    journal.write = killed
    with pytest.raises(world.killed):
        w.node(plan, journal, reboot=True)
    box.holder, box.files[ALWAYS] = "", BY_HAND
    result = applied(w, plan, resume=True)
    assert box.files[ALWAYS] == BY_HAND and ONCE not in box.files
    assert result.outcome is Outcome.ROLLBACK_FAILED and "it was changed since" in result.why


def test_a_boot_that_changes_a_file_of_the_step_keeps_nothing(trial: Callable[[], World]) -> None:
    w = trial()
    plan, box = w.plan(), w.boxes["n1"]
    boot = box.reboot

    def configured() -> None:
        boot()
        box.files[ALWAYS] = BY_HAND

    box.reboot = configured
    result = applied(w, plan)
    assert box.files[ALWAYS] == BY_HAND and ONCE not in box.files
    assert result.outcome is Outcome.ROLLBACK_FAILED and "it was changed since" in result.why


@pytest.mark.parametrize("when", ["running", "resumed"])
def test_a_setting_that_is_no_longer_approved_is_not_kept(
    world: Callable[..., World], trial: Callable[[], World], when: str
) -> None:
    """A signer was revoked while the node rebooted, or after the controller was killed."""
    w = trial()
    plan, box, journal = w.plan(), w.boxes["n1"], w.journal()
    before, write = box.everything(), journal.write

    def killed(record: Any) -> Any:
        if isinstance(record, ActionBegin) and record.action == 1:
            raise world.killed
        write(record)

    if when == "resumed":
        journal.write = killed
        with pytest.raises(world.killed):
            w.node(plan, journal, reboot=True)
        box.holder, journal = "", w.journal()
    why = "the plan needs 1 approval for reboot and has none"
    resume = when == "resumed"
    result = w.node(plan, journal, reboot=True, resume=resume, withdrawn=lambda: why)
    assert result.outcome is Outcome.FAILED, result
    assert f"so nodevet reverts the step ({why})" in result.why
    assert "one more reboot" in result.why or box.boots == 3
    assert later_boots(w) == {"always"} and box.everything() == before


@pytest.mark.parametrize("change", ["revoked", "expired"])
def test_a_revoked_signature_keeps_nothing_and_an_expired_plan_is_kept(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Both happen while the node reboots."""
    d = rig("n1").by_bob()
    with_trial(d.w)
    box, signers = d.w.boxes["n1"], d.project / "allowed_signers"
    before, boot = box.everything(), box.reboot

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=9999)

    def changed() -> None:
        boot()
        if change == "expired":
            monkeypatch.setattr("nodevet.fix.use.approved.datetime", Later)
        else:
            signers.write_text("bob ssh-ed25519 AAAA\n")

    box.reboot = changed
    done = d.apply(reboot=True, drain_hook="true")
    if change == "expired":
        assert d.outcomes() == {"n1": "verified_after_reboot"}, done
        assert later_boots(d.w) == {"never"}
        return
    assert d.outcomes() == {"n1": "failed_and_rolled_back"}, done
    assert "no longer approved" in done.out, done
    assert "reverted, effective after one more reboot" in done.out, done
    assert later_boots(d.w) == {"always"} and box.everything() == before


@pytest.mark.parametrize("moment", ["before", "writing", "after"])
def test_a_step_whose_session_is_lost_while_it_is_kept_is_unknown(
    trial: Callable[[], World], moment: str
) -> None:
    """The node goes off and does not answer again; a resume keeps the step in the end."""
    w = trial()
    plan, box, journal = w.plan(), w.boxes["n1"], w.journal()
    gone, write = [False], journal.write
    last = {"writing": (ActionBegin, 1), "after": (ActionEnd, 2)}.get(moment)

    def written(record: Any) -> Any:
        write(record)
        gone[0] |= last is not None and isinstance(record, last[0]) and record.action == last[1]

    def fault(box: Any, call: str, when: str) -> None:
        gone[0] |= moment == "before" and box.boots == 2 and call == "look"
        if gone[0]:
            raise WorkError("unreachable", "no route to host")

    journal.write, w.executor.fault = written, fault
    result = w.node(plan, journal, reboot=True)
    assert result.outcome is Outcome.UNKNOWN and "no route to host" in result.why, result
    (step,) = result.steps
    assert step.outcome is Outcome.UNKNOWN and "no route to host" in step.why, step
    w.executor.fault = lambda box, call, when: None
    box.holder = ""
    assert applied(w, plan, resume=True).outcome is Outcome.VERIFIED_AFTER_REBOOT
    assert box.boots == 2 and later_boots(w) == {"never"}
