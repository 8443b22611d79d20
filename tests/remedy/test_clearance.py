"""Approval, expiry, the drain hook and what uses the GPUs: asked right before, each time."""

import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from written_fixes import SET_NOW

from nodevet.base.project import Project
from nodevet.fix.approval.verify import sign, signature_file
from nodevet.fix.journal.journal import state
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan import plan_file
from nodevet.fix.rollout import drain_hook
from nodevet.fix.rollout.apply import ApplyOrder, Stop, apply
from nodevet.fix.rollout.limits import Limits
from nodevet.fix.use import approved
from nodevet.fix.use.approved import approval_check
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome, Refusal
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel
from tests.remedy.test_batch import CHECK, DEFRAG, HUGE, MORE

World = Any


def hooked(w: World, folder: Path, script: str = "") -> Path:
    """A drain hook that notes each call; `script` comes after that. The file of its notes."""
    notes, hook = folder / "drained", folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" >>{notes}\n{script}\n')
    hook.chmod(0o755)
    notes.write_text("")
    w.terms = msgspec.structs.replace(w.terms, drain_hook=str(hook))
    return notes


def test_the_hook_drains_a_node_again_before_each_later_step_that_needs_it(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """Someone may have resumed it since."""
    fix = SET_NOW.replace("Risk.LIVE", "Risk.DRAIN")
    w = world("n1", more={"CHECK": CHECK, "FIX": fix, "of": MORE}, defrag="never", huge="8")
    script = "[ $(wc -l <{}) = 1 ] || {{ echo bob uses it; exit 1; }}".format(tmp_path / "drained")
    notes = hooked(w, tmp_path, script)
    result = w.node(w.plan(), w.journal())
    assert notes.read_text() == "n1\nn1\n", result
    assert (result.outcome, result.refusal) == (Outcome.PARTIAL, Refusal.PRECONDITION), result
    assert "not drained: the drain hook ended with 1: bob uses it" in result.why
    assert (w.boxes["n1"].kernel[DEFRAG], w.boxes["n1"].kernel[HUGE]) == ("never", "0")


def test_a_rollback_drains_a_node_again_before_each_later_step_that_needs_it(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """What was reverted before is verified, and the rest waits for another rollback."""
    fix = SET_NOW.replace("Risk.LIVE", "Risk.DRAIN")
    w = world("n1", more={"CHECK": CHECK, "FIX": fix, "of": MORE}, defrag="never", huge="8")
    hooked(w, tmp_path)
    plan, box = w.plan(), w.boxes["n1"]
    before = box.everything()
    assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    script = "[ $(wc -l <{}) = 1 ] || {{ echo bob uses it; exit 1; }}".format(tmp_path / "drained")
    notes = hooked(w, tmp_path, script)
    result = w.back(plan)
    assert notes.read_text() == "n1\nn1\n", result
    assert (result.outcome, result.refusal) == (Outcome.PARTIAL, Refusal.PRECONDITION), result
    assert result.why == "not drained: the drain hook ended with 1: bob uses it"
    outcomes = {step.outcome for step in result.steps}
    assert outcomes == {Outcome.ROLLED_BACK, Outcome.NOT_ATTEMPTED}, result
    hooked(w, tmp_path)
    assert w.back(plan).outcome is Outcome.ROLLED_BACK and box.everything() == before


def test_d2_a_node_that_was_pending_is_rebooted_only_through_the_drain_hook(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world(ecc_mode=True)
    plan, box = w.plan(), w.boxes["n1"]
    hooked(w, tmp_path)
    assert w.node(plan, w.journal()).outcome is Outcome.PENDING
    notes = hooked(w, tmp_path, "exit 1")
    for resume in (False, True):
        result = w.node(plan, w.journal(f"{resume}"), resume=resume, reboot=True)
        assert result.outcome is Outcome.PENDING and box.boots == 1, result
        assert "not rebooted: not drained: the drain hook ended with 1" in result.why
    assert notes.read_text() == "n1\nn1\n"
    w.terms = msgspec.structs.replace(w.terms, drain_hook="")
    result = w.node(plan, w.journal("none"), reboot=True)
    assert "set --drain-hook" in result.why and box.boots == 1
    notes = hooked(w, tmp_path)
    result = w.node(plan, w.journal("run"), resume=True, reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and box.boots == 2, result


def test_d2_a_node_is_drained_again_right_before_its_reboot(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """A job may have come since the steps were begun."""
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    notes = hooked(w, tmp_path, f"test $(wc -l <{tmp_path}/drained) -lt 2")
    result = w.node(plan, w.journal(), reboot=True)
    assert notes.read_text() == "n1\nn1\n" and box.boots == 1
    assert result.outcome is Outcome.CHANGED and "not rebooted: not drained" in result.why


@pytest.mark.parametrize("resume", [False, True])
def test_d2_without_approval_for_reboots_nothing_is_rebooted(
    world: Callable[..., World], tmp_path: Path, resume: bool
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    notes = hooked(w, tmp_path)
    if resume:
        assert w.node(plan, w.journal()).outcome is Outcome.CHANGED
    before = box.everything()

    def closed(reboot: bool) -> str:
        return "the plan needs 2 approvals for reboot" if reboot else ""

    result = w.node(plan, w.journal(), resume=resume, reboot=True, closed=closed)
    assert "needs 2 approvals for reboot" in result.why
    assert box.boots == 1 and not notes.read_text() and box.everything() == before
    assert result.outcome is (Outcome.CHANGED if resume else Outcome.REFUSED)


def test_d2_the_reboot_after_a_driver_is_restored_needs_a_drain_too(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world(ecc_mode=True)
    plan, box = w.plan(), w.boxes["n1"]
    hooked(w, tmp_path, f"test $(wc -l <{tmp_path}/drained) -lt 3")
    reboot = box.reboot

    def deaf() -> None:
        reboot()
        box.gpus[0]["ecc"] = [False, False]

    box.reboot = deaf
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.FAILED and box.boots == 2, result
    assert "effective after one more reboot; not rebooted: not drained" in result.why


# --- expiry and revocation ------------------------------------------------------------------------


class Clock:
    """Says that the plan expired once it was asked so often."""

    def __init__(self, often: int) -> None:
        self.left = often

    def __call__(self, reboot: bool) -> str:
        self.left -= 1
        return "" if self.left >= 0 else "the plan expired"


def fleet(w: World, plan: Plan, closed: Callable[[bool], str], **rest: Any) -> Any:
    order = ApplyOrder(
        plan=plan,
        context=w.context,
        baselines={"b": w.baseline},
        hosts=frozenset(w.boxes),
        terms=w.terms,
        closed=closed,
    )
    with Stop() as stop:
        return apply(order, w.executor, w.journal(), Limits(batch=1), stop=stop, **rest)


def test_d16_no_node_is_begun_once_the_plan_expired(world: Callable[..., World]) -> None:
    w = world("n1", "n2", "n3")

    def closed(reboot: bool) -> str:
        return "the plan expired" if w.boxes["n2"].writes else ""

    results, _ = fleet(w, w.plan(), closed)
    assert [result.outcome for result in results] == [
        Outcome.CHANGED,
        Outcome.CHANGED,
        Outcome.NOT_ATTEMPTED,
    ]
    assert results[2].why == "the plan expired" and not w.boxes["n3"].calls


def test_d16_a_node_in_progress_finishes_its_step_and_starts_no_other(
    world: Callable[..., World],
) -> None:
    w = world(pages="never", ecc_mode=True)
    plan, box = w.plan(), w.boxes["n1"]

    def closed(reboot: bool) -> str:
        return "the plan expired" if box.writes else ""

    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    result = w.node(plan, w.journal(), reboot=True, closed=closed)
    assert [step.outcome for step in result.steps[:2]] == [Outcome.CHANGED, Outcome.NOT_ATTEMPTED]
    assert "the plan expired" in result.why and "n1/pages/1 is changed, and stays" in result.why
    assert box.writes == 4 and box.boots == 1


def test_d16_a_plan_that_expires_while_a_node_is_drained_changes_nothing(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world(pages={"mode": "never", "risk": "drain"})
    notes = hooked(w, tmp_path)

    def closed(reboot: bool) -> str:
        return "the plan expired" if notes.read_text() else ""

    result = w.node(w.plan(), w.journal(), closed=closed)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.STALE)
    assert not w.boxes["n1"].writes


def test_d16_a_started_step_is_resolved_after_the_plan_expired(
    world: Callable[..., World],
) -> None:
    """And completed only where nothing more is to be written for that."""
    for killed_at in (7, 12):  # before the last write; before the check is asked
        w = world("n1", "n2")
        plan, box = w.plan(), w.boxes["n1"]
        before, calls = box.everything(), [0]

        def kill(box: Any, call: str, when: str, at: int = killed_at, calls: Any = calls) -> None:
            calls[0] += when == "before"
            if calls[0] == at:
                raise world.killed

        w.executor.fault = kill
        with pytest.raises(world.killed):
            w.node(plan, w.journal())
        w.executor.fault = lambda box, call, when: None
        box.session, box.holder, writes = False, "", box.writes
        results, _ = fleet(w, plan, Clock(0), earlier=state(w.journal().records))
        assert not w.boxes["n2"].calls and results[1].outcome is Outcome.NOT_ATTEMPTED
        if killed_at == 7:
            assert not results[0].outcome.good and box.everything() == before, results[0]
        else:
            assert results[0].outcome is Outcome.CHANGED and box.writes == writes, results[0]


@pytest.fixture
def signed(tmp_path: Path) -> Callable[..., Any]:
    """A plan that expires in so many seconds, which Ann and Bob signed, in a run's folder. `ahead`:
    seconds that the clock of its author is ahead of this one."""

    def make(seconds: float, *, ahead: float = 0.0) -> Any:
        now = datetime.now(timezone.utc)
        path = "/sys/x"
        step = Step(
            id="n1/x/1",
            host="n1",
            fix="x",
            subjects=("",),
            expected="1",
            actual="0",
            risk=Risk.LIVE,
            actions=(WriteKernel(path=path, value="1"),),
            resources=(Resource(kind="kernel", name=path),),
            reason="",
        )
        plan = Plan(
            id="plan0001",
            author="zoe",
            created=(now + timedelta(seconds=ahead)).isoformat(),
            expires=(now + timedelta(seconds=ahead + seconds)).isoformat(),
            baselines={"b": "1"},
            nodes={"n1": PlannedNode(machine_id="m", boot_id="b", baseline="b")},
            steps=(step,),
        )
        text, lines = plan_file.write(plan), {}
        file = tmp_path / "plan.json"
        file.write_bytes(text)
        for name in ("ann", "bob", "zoe"):
            key = tmp_path / name
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True
            )
            lines[name] = f"{name} {key.with_suffix('.pub').read_text()}"
            if name != plan.author:
                signature_file(file, name).write_bytes(sign(text, key))
        signers = tmp_path / "allowed_signers"
        signers.write_text("".join(lines.values()))
        run: Any = SimpleNamespace(plan_file=file)
        return SimpleNamespace(
            closed=approval_check(run, text, plan_file.read(text), (), Project(tmp_path)),
            signers=signers,
            lines=lines,
            file=file,
        )

    return make


def test_d16_expiry_and_revocation_count_at_the_moment_of_asking(
    signed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = signed(3600)
    assert it.closed(False) == it.closed(True) == ""
    it.signers.write_text(it.lines["bob"])
    assert it.closed(False) == ""
    assert "the plan needs 2 approvals" in it.closed(True)
    it.signers.write_text("nobody ssh-ed25519 AAAA")
    assert it.closed(False)
    it.signers.unlink()
    assert "cannot tell whether the plan is approved" in it.closed(False)
    it.signers.write_text("".join(it.lines.values()))
    signature_file(it.file, "ann").unlink()
    signature_file(it.file, "bob").unlink()
    assert "has none" in it.closed(False)
    late = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(seconds=3601))
    monkeypatch.setattr(approved, "datetime", late)
    assert "the plan expired at" in it.closed(False)


@pytest.mark.parametrize(("ahead", "ok"), [(120, True), (86400, False), (-120, True)])
def test_a_plan_dated_in_the_future_is_not_applied(signed: Any, ahead: float, ok: bool) -> None:
    """A clock that is ahead by a day would let the plan live a day longer than anyone approved."""
    why = signed(3600, ahead=ahead).closed(False)
    assert (" in the future (" in why) is not ok, why
    assert (why == "") is ok, why


OFFERING = """test $NODEVET_HOOK = drain && echo 'nodevet-hook: undrain reboot'
echo "$NODEVET_HOOK $NODEVET_PLAN $NODEVET_CHECKS" >>{notes}
{more}"""


def offering(w: World, folder: Path, more: str = "") -> Callable[[], list[str]]:
    """A drain hook that also reboots and gives back; what it was called for."""
    notes = hooked(w, folder, OFFERING.format(notes=folder / "calls", more=more))
    assert notes.read_text() == ""
    w.terms = msgspec.structs.replace(w.terms, plan="plan0001")
    return lambda: [line.split()[0] for line in (folder / "calls").read_text().splitlines()]


def taken(w: World) -> list[str]:
    """The hosts that the journal says are still to be given back."""
    hosts = state(w.journal().records).hosts
    return [name for name, host in hosts.items() if host.is_taken]


def test_a_hook_that_offers_to_reboot_reboots_and_undrains_the_node(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    calls = offering(w, tmp_path)
    first = box.boot_id
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and box.boots == 2, result
    assert calls() == ["drain", "drain", "reboot", "undrain"]
    assert box.left == first  # nodevet itself reboots nothing, and waits for the end of this boot
    assert (tmp_path / "calls").read_text().startswith("drain plan0001 pages\n")
    assert taken(w) == []


def test_a_node_whose_undrain_fails_stays_drained_and_is_recorded(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world()
    plan = w.plan()
    calls = offering(w, tmp_path, "test $NODEVET_HOOK != undrain")
    result = w.node(plan, w.journal(), reboot=True)
    assert result.why.endswith("stays drained: the drain hook ended with 1"), result
    assert taken(w) == ["n1"]
    calls = offering(w, tmp_path)
    again = w.node(plan, w.journal(), resume=True)
    assert again.outcome.good, again
    assert calls()[-1] == "undrain"
    assert taken(w) == []


def test_a_node_is_undrained_if_its_hook_is_killed_while_it_drains(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world()
    plan = w.plan()
    calls = offering(w, tmp_path, "test $NODEVET_HOOK != drain || exec sleep 60")
    w.terms = msgspec.structs.replace(w.terms, drain_seconds=0.5)
    result = w.node(plan, w.journal(), reboot=True)
    assert (result.outcome, w.boxes["n1"].writes) == (Outcome.REFUSED, 0)
    assert "was killed" in result.why
    assert calls() == ["drain", "undrain"]
    assert taken(w) == []


def test_nodevet_does_not_reboot_if_the_hook_fails_to_reboot(
    world: Callable[..., World], tmp_path: Path
) -> None:
    w = world()
    plan, box = w.plan(), w.boxes["n1"]
    offering(w, tmp_path, "test $NODEVET_HOOK != reboot")
    result = w.node(plan, w.journal(), reboot=True)
    assert box.boots == 1 and "the drain hook ended with 1" in result.why, result


def test_a_run_killed_while_its_hook_drains_undrains_the_node_later(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world()
    plan = w.plan()
    calls = offering(w, tmp_path)
    with monkeypatch.context() as patch:

        def killed(*_: object) -> int:
            raise KeyboardInterrupt

        patch.setattr(drain_hook, "_run", killed)
        with pytest.raises(KeyboardInterrupt):
            w.node(plan, w.journal(), reboot=True)
    assert taken(w) == ["n1"]
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert (calls()[-1], taken(w)) == ("undrain", [])
