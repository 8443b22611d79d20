"""Brings back a node that does not answer when its run is resumed or rolled back: an earlier
controller left it switched off, or it hangs in a reboot."""

from nodevet.base.errors import UserError
from nodevet.fix.events import Phase
from nodevet.fix.journal.owner import boot_id, uptime_s
from nodevet.fix.journal.state import HostState, JournalState
from nodevet.fix.rollout.clearance import Clearance, RefusedError, enter
from nodevet.fix.rollout.power import ON, REBOOT
from nodevet.fix.rollout.session import NodeSession
from nodevet.fixing.result import REQUESTED, Refusal
from nodevet.fleet.executor import WorkError


def enter_or_wake(session: NodeSession, clearance: Clearance, earlier: JournalState | None) -> None:
    """Open the session and lock the node. If the run was rebooting the node and it does not answer,
    bring it back first. Raises RefusedError, LostError and JournalError."""
    try:
        enter(session)
    except RefusedError as error:
        host = earlier.host(session.host) if earlier else None
        if error.refusal is not Refusal.UNREACHABLE or not host or not host.asked:
            raise
        if why := _wake_error(session, clearance, host):
            raise RefusedError(Refusal.UNREACHABLE, f"{error}; {why}") from error
        enter(session)


def _wake_error(session: NodeSession, clearance: Clearance, host: HostState) -> str:
    """Why the node does not come back; empty if it did. A node is switched off only if that was
    begun, or if the terms say so now and nothing was asked of its BMC yet."""
    was_switched = host.asked != REBOOT
    try:
        if was_switched and session.switch_on(host.boot_id):
            return _boot_error(session, host.boot_id, session.terms.reboot_seconds)
    except UserError as error:
        return str(error)
    if not (was_switched or session.terms.power_cycle):
        return f"{REQUESTED} earlier{session.power_text()}"
    seconds = _seconds_left(session, host)
    why = _boot_error(session, host.boot_id, seconds) if seconds else "it did not come back in time"
    if not why:
        return ""
    if host.asked == ON or not session.terms.power_cycle:
        return f"{why}{session.power_text()}"
    return _cycle_error(session, clearance, host)


def _cycle_error(session: NodeSession, clearance: Clearance, host: HostState) -> str:
    clearance.require_approval(reboot=True)
    if (
        why := session.hook.drain(is_locked=False)
        if session.hook
        else "no drain hook says that the node is drained"
    ):
        raise RefusedError(Refusal.PRECONDITION, why)
    clearance.require_approval(reboot=True)
    if session.is_rebooted(host.boot_id):  # meanwhile someone else brought it back
        return ""
    if why := session.cycle_power(host.boot_id, session.planned.ids, runs=False):
        return why
    return _boot_error(session, host.boot_id, session.terms.reboot_seconds)


def _boot_error(session: NodeSession, left: str, seconds: float) -> str:
    """Why no other boot than `left` answers within this time; empty if one does."""
    session.tell(Phase.REBOOTING, seconds=seconds)
    try:
        session.await_boot(left, seconds)
    except WorkError as error:
        return str(error)
    return ""


def _seconds_left(session: NodeSession, host: HostState) -> float:
    """What is left of the node's time to come back. Only the uptime of the controller counts, in
    the boot that asked for the reboot: its clock may have been set since."""
    limit = session.terms.reboot_seconds
    if host.controller_s is None or not host.controller_boot or host.controller_boot != boot_id():
        return limit
    return max(0.0, min(limit, limit - (uptime_s() - host.controller_s)))
