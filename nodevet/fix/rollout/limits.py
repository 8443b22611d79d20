"""How many nodes may begin: canary, then a sliding window, within a failure budget. Pure."""

import re

import msgspec

from nodevet.fixing.result import CANARY_NOT_REBOOTED, CANARY_PENDING, HostResult, Outcome

FAILURES = frozenset({Outcome.FAILED, Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN})
PROOFS = frozenset({Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT})
UNPROVEN = {
    Outcome.PENDING: f"{CANARY_PENDING}: its change is not effective yet",
    Outcome.CHANGED: f"{CANARY_NOT_REBOOTED}: the plan wants its change verified by a reboot",
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How careful a run is, in nodes."""

    canary: int = 1  # that must be proven before the rest begins; 0: none
    batch: int = 10  # at the same time, after the canary
    max_fail: int = 0  # the run goes on with so many failures, and stops at one more
    proofs: frozenset[Outcome] = PROOFS  # the outcomes of a changed node that prove a canary


class RolloutProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a run, in nodes."""

    running: int = 0
    proven: int = 0  # something was changed there, and holds
    unproven: str = ""  # why a node that was changed proves nothing yet
    failed: int = 0
    ended: int = 0  # in whatever way

    def with_host_begun(self) -> "RolloutProgress":
        return msgspec.structs.replace(self, running=self.running + 1)

    def with_host_ended(self, host: HostResult, limits: Limits) -> "RolloutProgress":
        return msgspec.structs.replace(
            self,
            running=self.running - 1,
            ended=self.ended + 1,
            proven=self.proven + (host.outcome in limits.proofs and _was_changed(host)),
            unproven=self.unproven or unproven_reason(limits, host),
            failed=self.failed + (host.outcome in FAILURES),
        )


def _was_changed(host: HostResult) -> bool:
    """Whether this run wrote something there; a setting that was pending before does not count."""
    return host.outcome is not Outcome.PENDING or any(step.ran for step in host.steps)


def unproven_reason(limits: Limits, host: HostResult) -> str:
    """Why a changed node does not prove the canary yet; empty for any other node."""
    if host.outcome in limits.proofs or not _was_changed(host):
        return ""
    return UNPROVEN.get(host.outcome, "")


def stop_reason(limits: Limits, progress: RolloutProgress) -> str:
    """Why no more nodes may start; empty if one may.

    A failed canary stops the run whatever the budget. So does a canary that was changed and is not
    proven: the next node would end no better. A node that was refused or unchanged proves nothing,
    so another one becomes the canary.
    """
    if progress.failed and in_canary(limits, progress):
        return "the canary failed"
    if progress.unproven and in_canary(limits, progress):
        return progress.unproven
    if progress.failed > limits.max_fail:
        allowed = "none" if limits.max_fail == 0 else f"only {limits.max_fail}"
        noun = "node" if progress.failed == 1 else "nodes"
        return f"{progress.failed} {noun} failed, but {allowed} may"
    return ""


def in_canary(limits: Limits, progress: RolloutProgress) -> bool:
    """Whether a node that begins now is a canary."""
    return progress.proven < limits.canary


def room(limits: Limits, progress: RolloutProgress) -> int:
    """How many more nodes may start now."""
    if stop_reason(limits, progress):
        return 0
    if in_canary(limits, progress):
        return max(0, limits.canary - progress.proven - progress.running)
    return max(0, limits.batch - progress.running)


def node_count(text: str, total: int, *, up: bool = False) -> int:
    """Nodes from `4` or `10%` of `total`, rounded down, or `up`; 0 from `0` and `0%` alone.

    Raises ValueError if it is neither.
    """
    match = re.fullmatch(r"(\d{1,7})(%?)", text.strip(), re.ASCII)
    if match is None or (match[2] and int(match[1]) > 100):
        raise ValueError(f"{text!r} is neither a number of nodes nor a share of them, such as 10%")
    number = int(match[1])
    if not match[2]:
        return number
    return -(-total * number // 100) if up else total * number // 100


def limits(nodes: int, *, canary: str, batch: str, max_fail: str) -> Limits:
    """The limits of a run over this number of nodes, each from `4` or `10%`.

    Rounds the canary's share up, so that few nodes have one too; the batch's share down, but to at
    least one; the share of failures down. Raises ValueError, which names the option.
    """
    numbers = {}
    for name, text in (("canary", canary), ("batch", batch), ("max-fail", max_fail)):
        try:
            numbers[name] = node_count(text, nodes, up=name == "canary")
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from error
    if re.fullmatch(r"0+%?", batch.strip()):
        raise ValueError(f"--batch {batch.strip()}: no node would ever start; give 1 or more")
    return Limits(
        canary=numbers["canary"], batch=max(1, numbers["batch"]), max_fail=numbers["max-fail"]
    )
