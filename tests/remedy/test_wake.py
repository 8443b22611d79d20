"""What a run does with a node that is switched off and on, and with one that does not come back:
by a BMC and nodes that are data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.base.errors import UserError
from nodevet.checking.bmc_identity import BmcMatch, MachineIds
from nodevet.fix.journal.account import account
from nodevet.fix.journal.owner import boot_id, uptime_s
from nodevet.fix.journal.state import HostState
from nodevet.fix.rollout.session import NodeSession
from nodevet.fix.rollout.wake import _seconds_left
from nodevet.fix.standing import in_hand
from nodevet.fixing.result import Outcome, Refusal
from nodevet.fleet.executor import WorkError

World = Any


class Pdu:
    """The power of one box; `fails`: the request after which its BMC says nothing more."""

    def __init__(
        self, box: Any, *, leaks: bool = False, fails: str = "", foreign: str = ""
    ) -> None:
        self.box, self.leaks, self.fails, self.foreign = box, leaks, fails, foreign
        self.is_on = True

    def ready(self) -> None:
        """Nothing to read."""

    def text(self) -> str:
        return f"its BMC says that the power is {'on' if self.is_on else 'off'}"

    def identity(self, node: MachineIds) -> BmcMatch:
        return BmcMatch(not self.foreign, "")

    def refusal(self, found: BmcMatch) -> str:
        return "" if found.is_own else self.foreign

    def cycle(self, asked: Callable[[str], None], *, runs: bool, **more: Any) -> None:
        assert runs is self.box.session and more.keys() == {"node", "rebooted"}
        if self.leaks:
            raise UserError("BMC b: a leak detector does not report OK: Hose: critical")
        for what in ("soft off", "on"):
            asked(what)
            self._switch(on=what == "on")
            if what == self.fails:
                raise UserError(f"BMC b: no answer after {what}")

    def switch_on_if_off(self, asked: Callable[[str], None], *, node: MachineIds) -> bool:
        if self.is_on:
            return False
        asked("on")
        self._switch(on=True)
        return True

    def _switch(self, *, on: bool) -> None:
        self.is_on = on
        self.box.session, self.box.holder, self.box.gone = False, "", 0 if on else 999
        if on:
            self.box.reboot()


@pytest.fixture
def rig(world: Callable[..., World], tmp_path: Path) -> Callable[..., tuple[World, Pdu]]:
    def make(*, power_cycle: bool = True, **power: Any) -> tuple[World, Pdu]:
        w = world()
        box = w.boxes["n1"]
        pdu = Pdu(box, **power)
        w.terms = msgspec.structs.replace(
            w.terms, drain_hook="true", power_cycle=power_cycle, reboot_seconds=0.0
        )

        def session(plan: Any, host: str, journal: Any) -> NodeSession:
            def keep(name: str, document: bytes) -> None:
                w.kept.append((host, name))

            node = plan.nodes[host]
            return NodeSession(host, w.executor, journal, w.terms, keep, node, power=pdu)

        def reboot(host: str, *, seconds: float, left: str = "") -> str:
            if not left:
                box.reboot()
            if box.gone or box.boot_id == left:
                raise WorkError("timeout", "timed out (rebooting)")
            box.session = True
            return str(box.boot_id)

        w.session, w.executor.reboot = session, reboot
        return w, pdu

    return make


def hangs(w: World) -> None:
    """The node goes down in its reboot, and does not come back by itself."""

    def reboot(host: str, *, seconds: float, left: str = "") -> str:
        box = w.boxes[host]
        if left and box.boot_id != left and not box.gone:
            box.session = True
            return str(box.boot_id)
        box.session, box.holder, box.gone = False, "", box.gone or 999
        raise WorkError("timeout", "timed out (rebooting)")

    w.executor.reboot = reboot


def test_a_changed_node_is_switched_off_and_on(rig: Any) -> None:
    w, _ = rig()
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert w.boxes["n1"].boots == 2


def test_a_leak_leaves_the_node_on(rig: Any) -> None:
    w, _ = rig(leaks=True)
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert result.outcome is Outcome.CHANGED and not result.rebooted
    assert "not rebooted: not switched off: BMC b: " in result.why + result.steps[0].why
    assert w.boxes["n1"].boots == 1


def test_the_bmc_of_another_machine_refuses_the_node_before_anything_is_changed(rig: Any) -> None:
    w, pdu = rig(foreign="BMC b: it is the BMC of another machine: its system UUID is x")
    pdu.cycle = None
    result = w.node(w.plan(), w.journal(), reboot=True)
    assert (result.outcome, result.refusal) == (Outcome.REFUSED, Refusal.PRECONDITION), result
    assert result.why == pdu.foreign and not any(step.ran for step in result.steps)


def test_a_node_that_came_back_while_it_was_drained_is_not_switched(rig: Any) -> None:
    """Somebody else brought it back: its new boot is not switched off."""
    w, pdu = rig(power_cycle=False)
    hangs(w)
    plan = w.plan()
    w.node(plan, w.journal(), reboot=True)
    w.terms = msgspec.structs.replace(w.terms, power_cycle=True)
    box = w.boxes["n1"]

    def reboot(host: str, *, seconds: float, left: str = "") -> str:
        tries.append(host)
        if len(tries) == 1:
            raise WorkError("timeout", "timed out (rebooting)")
        if len(tries) == 2:
            box.gone = 0
            box.reboot()
        box.session = True
        return str(box.boot_id)

    tries: list[str] = []
    w.executor.reboot, pdu.cycle = reboot, None
    w.terms = msgspec.structs.replace(w.terms, reboot_seconds=900.0)
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT and box.boots == 2, result


def test_a_node_that_stays_off_is_switched_on_by_a_resume(rig: Any) -> None:
    w, pdu = rig(fails="soft off")
    plan = w.plan()
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN
    assert "BMC b: no answer after soft off; its BMC says that the power is off" in result.why
    w.terms = msgspec.structs.replace(w.terms, power_cycle=False)  # switching on needs no leave
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert pdu.is_on and w.boxes["n1"].boots == 2


def test_a_whole_power_cycle_is_not_repeated(rig: Any) -> None:
    w, pdu = rig()
    hangs(w)
    pdu._switch = lambda *, on: vars(pdu.box).update(session=False, holder="", gone=999)
    plan = w.plan()
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN and "its BMC switched it off and on: " in result.why
    pdu.cycle = None
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.UNKNOWN, result
    assert "it did not come back in time; its BMC says that the power is on" in result.why


def test_a_node_that_hangs_is_switched_only_if_the_terms_say_so(rig: Any) -> None:
    w, _ = rig(power_cycle=False)
    hangs(w)
    plan = w.plan()
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN and "the reboot was requested: " in result.why
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.UNKNOWN and w.boxes["n1"].boots == 1
    assert "the reboot was requested earlier; its BMC says that the power is on" in result.why

    w.terms = msgspec.structs.replace(w.terms, power_cycle=True)
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.VERIFIED_AFTER_REBOOT, result
    assert w.boxes["n1"].boots == 2


@pytest.mark.parametrize(("hook", "closed"), [("false", ""), ("true", "the plan expired")])
def test_a_node_that_is_not_drained_or_approved_is_not_switched(
    rig: Any, hook: str, closed: str
) -> None:
    w, _ = rig(power_cycle=False)
    hangs(w)
    plan = w.plan()
    w.node(plan, w.journal(), reboot=True)
    w.terms = msgspec.structs.replace(w.terms, power_cycle=True, drain_hook=hook)
    task = {"resume": True, "reboot": True, "closed": lambda reboot: closed}
    result = w.node(plan, w.journal(), **task)
    assert result.outcome is Outcome.UNKNOWN, result
    assert (closed or "not drained: the drain hook ended with 1") in result.why
    assert w.boxes["n1"].boots == 1


def test_a_hook_that_knows_of_another_run_keeps_a_hanging_node_on(rig: Any) -> None:
    """The node does not answer, so this run does not hold its lock."""
    w, _ = rig(power_cycle=False)
    hangs(w)
    plan = w.plan()
    w.node(plan, w.journal(), reboot=True)
    hook = """sh -c 'if [ "$NODEVET_LOCKED" = no ]; then echo bob reboots it; exit 1; fi'"""
    w.terms = msgspec.structs.replace(w.terms, power_cycle=True, drain_hook=hook)
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert (result.outcome, w.boxes["n1"].boots) == (Outcome.UNKNOWN, 1), result
    assert "not drained: the drain hook ended with 1: bob reboots it" in result.why


def test_a_node_that_was_not_rebooting_is_never_switched(rig: Any) -> None:
    """It may be at work, and only the network is down."""
    w, pdu = rig()
    plan = w.plan()
    w.boxes["n1"].gone = 999
    pdu.cycle = None
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.REFUSED and result.refusal is Refusal.UNREACHABLE


def test_a_started_node_that_the_run_did_not_reboot_is_never_power_cycled(rig: Any) -> None:
    w, pdu = rig()
    plan = w.plan()
    w.node(plan, w.journal())
    w.boxes["n1"].gone = 999
    pdu.cycle = None
    result = w.node(plan, w.journal(), resume=True, reboot=True)
    assert result.outcome is Outcome.UNKNOWN, result
    assert w.boxes["n1"].boots == 1


def test_the_wait_for_a_node_counts_only_uptime_of_the_same_controller_boot(rig: Any) -> None:
    """A controller whose clock jumps ahead would switch a node off in the middle of its boot."""
    w, _ = rig()
    w.terms = msgspec.structs.replace(w.terms, reboot_seconds=900.0)
    session = w.session(w.plan(), "n1", w.journal())

    def left(seconds: float | None, boot: str) -> float:
        host = HostState(asked="reboot", controller_s=seconds, controller_boot=boot)
        return _seconds_left(session, host)

    assert left(uptime_s() - 600, boot_id()) == pytest.approx(300, abs=5)
    assert left(uptime_s() - 1000, boot_id()) == 0
    assert left(uptime_s() - 600, "another boot") == left(None, boot_id()) == left(1.0, "") == 900


def test_the_journal_has_the_uptime_of_the_controller_at_each_request(rig: Any) -> None:
    w, _ = rig(fails="soft off")
    before = uptime_s()
    w.node(w.plan(), w.journal(), reboot=True)
    (asked,) = (each for each in w.journal().records if getattr(each, "asked", ""))
    assert before <= asked.controller_s <= uptime_s()


@pytest.mark.parametrize("is_on", [False, True])
def test_a_rollback_powers_on_a_node_that_its_run_left_off(is_on: bool, rig: Any) -> None:
    """A resume would not visit the node any more."""
    w, pdu = rig(fails="soft off")
    plan = w.plan()
    w.node(plan, w.journal(), reboot=True)
    assert not pdu.is_on
    pdu.is_on = is_on  # then the node hangs
    w.terms = msgspec.structs.replace(w.terms, power_cycle=False)
    result = w.back(plan)
    assert pdu.is_on
    if is_on:
        assert result.outcome is Outcome.UNKNOWN
        assert "it did not come back in time; its BMC says that the power is on" in result.why
    else:
        assert result.outcome is Outcome.ROLLED_BACK, result


@pytest.mark.parametrize("asked", ["off", "reboot"])
def test_a_killed_run_says_that_the_node_may_be_off(asked: str, rig: Any) -> None:
    w, pdu = rig()

    def killed(ask: Callable[[str], None], **more: Any) -> None:
        ask(asked)
        raise KeyboardInterrupt

    pdu.cycle = killed
    plan, journal = w.plan(), w.journal()
    with pytest.raises(KeyboardInterrupt):
        w.node(plan, journal, reboot=True)
    (host,) = (host for host in account(plan, journal.records).hosts if host.host == "n1")
    assert host.outcome is Outcome.UNKNOWN
    said = "; the last request to its BMC was `off`: if the power is off, a resume switches it on"
    assert host.why.endswith(said) is (asked == "off"), host
    (now,) = in_hand(plan, journal.records)
    assert now.doing == f"asked for {asked}"
