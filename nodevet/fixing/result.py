"""How a run of fixes ended, node by node and step by step: its result.json."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from nodevet.fixing.model import Risk
from nodevet.model import Value
from nodevet.resource import AnyAction, State

SCHEMA = 3
ONLY = "only"  # of a run's options: the hosts that --host chose; without it, all
NAMED = "baselines"  # of a run's options: what -b named, which later commands must name again
CONFIRMED = "confirmed"  # of the options of a run that `nodevet apply @local` began
LEFT_OUT = "left out by --host"
CANARY_PENDING = "the canary is pending"
CANARY_NOT_REBOOTED = "the canary was not rebooted"
NOTHING_HELPED = "a power cycle did not help: a person must look at the part, or replace it (RMA)"
REQUESTED = "the reboot was requested"
SWITCHED = "its BMC switched it off and on"
SWITCHING = "switching it off and on"
POWER_TEXT = "its BMC says that the power is"
"""In the reason of a host that did not come back from a reboot."""
BY_HAND = "nodevet does nothing there; look at it yourself"
NO_FURTHER = "nodevet starts no more nodes"
BRIEF = 300  # characters of a command's output in one line of a report


class Outcome(str, Enum):
    """How one node, or one step, ended. Worst first: a node ends as the worst of its steps."""

    ROLLBACK_FAILED = "rollback_failed"  # `why` says exactly what is as it was and what is not
    UNKNOWN = "unknown"  # the node did not answer again
    FAILED = "failed_and_rolled_back"
    PARTIAL = "partial"  # some steps are changed or rolled back; others were refused or left
    REFUSED = "refused"  # nothing was written
    NOT_ATTEMPTED = "not_attempted"
    PENDING = "pending"  # set, and effective after the next restart, reset or reboot
    ROLLED_BACK = "rolled_back"  # as requested
    VERIFIED_AFTER_REBOOT = "verified_after_reboot"  # the check said ok after a reboot
    CHANGED = "changed"  # the check says ok
    UNCHANGED = "unchanged"  # nothing had to be written

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")

    @property
    def rank(self) -> int:
        return list(Outcome).index(self)

    @property
    def good(self) -> bool:
        return self.rank >= Outcome.PENDING.rank


class Refusal(str, Enum):
    """Why a node was refused."""

    STALE = "stale"  # not what the plan was made on
    LOCKED = "locked"  # another controller has the node's lock
    MANAGER = "manager"  # something else on the node manages the same setting
    PRECONDITION = "precondition"  # in use, or not drained
    UNREACHABLE = "unreachable"  # no session, or no usable evidence


REVERTED = frozenset(
    {Outcome.FAILED, Outcome.ROLLED_BACK, Outcome.NOT_ATTEMPTED, Outcome.UNCHANGED}
)
"""The outcomes of a step that leaves nothing on its node."""
HELD = frozenset({Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT, Outcome.PENDING})


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A valid signature of one person."""

    who: str  # the principal
    key: str  # fingerprint: SHA256:...
    file: str  # of the signature


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was started. `ok` is None if its end is not known."""

    action: AnyAction
    ok: bool | None
    code: int | None = None
    output: str = ""


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended, with everything that a report shows of it."""

    id: str
    fix: str
    subjects: tuple[str, ...]
    expected: Value
    actual: Value
    unit: str = ""
    risk: Risk
    outcome: Outcome = Outcome.NOT_ATTEMPTED
    why: str = ""
    before: tuple[State, ...] = ()
    after: tuple[State, ...] = ()
    ran: tuple[Ran, ...] = ()
    verdicts: Mapping[str, str] = {}  # subject -> last verdict of the check; empty: none

    @property
    def leaves_changes(self) -> bool:
        """Whether it changed something, and nodevet did not revert that."""
        return bool(self.ran) and self.outcome not in REVERTED

    @property
    def is_one_way(self) -> bool:
        """Whether it ended as it should, with an action that nothing can undo."""
        return self.outcome in HELD and any(ran.action.is_one_way for ran in self.ran)


class HostResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one node ended. Every node of a plan has exactly one."""

    host: str
    outcome: Outcome
    why: str = ""
    refusal: Refusal | None = None
    canary: bool = False
    rebooted: bool = False
    seconds: float = 0.0
    steps: tuple[StepResult, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `apply` or `rollback`."""

    schema: int = SCHEMA
    kind: str = "apply"  # or rollback
    nodevet: str
    plan: str  # its id
    digest: str  # its sha256
    author: str
    approvals: tuple[Approval, ...] = ()
    started: str  # ISO 8601 with offset
    seconds: float
    options: Mapping[str, Any] = {}
    stopped: str = ""  # why the run started no more nodes
    unknown: str = ""  # why the outcome of the run is unknown: no end, or not all was recorded
    hosts: tuple[HostResult, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the hosts; 3 if the outcome of the run itself is unknown."""
        if self.unknown:
            return 3
        requested = self.requested_hosts
        return exit_code(requested) or int(not all(self.good(host.outcome) for host in requested))

    @property
    def requested_hosts(self) -> tuple[HostResult, ...]:
        """The hosts of the run without those that --host left out."""
        only = hosts_given(self.options)
        return tuple(
            host
            for host in self.hosts
            if only is None or host.host in only or host.outcome is not Outcome.NOT_ATTEMPTED
        )

    @property
    def leaves_changes(self) -> bool:
        """Whether the run changed something on a node, and did not revert it."""
        return any(step.leaves_changes for host in self.hosts for step in host.steps)

    @property
    def is_revertible(self) -> bool:
        """Whether a rollback may revert something on a node."""
        return any(
            step.leaves_changes and not step.is_one_way
            for host in self.hosts
            for step in host.steps
        )

    def good(self, outcome: Outcome) -> bool:
        """Whether a node ended as requested: an apply does not request a rollback."""
        return outcome.good and not (self.kind == "apply" and outcome is Outcome.ROLLED_BACK)


def hosts_given(options: Mapping[str, Any]) -> frozenset[str] | None:
    """The hosts that --host chose, by a run's options; None: all."""
    only = options.get(ONLY)
    if not isinstance(only, (list, tuple)):
        return None
    return frozenset(name for name in only if isinstance(name, str))


def baselines_given(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The baselines that -b named, by a run's options."""
    names = options.get(NAMED)
    if not isinstance(names, (list, tuple)):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def exit_code(hosts: Iterable[HostResult]) -> int:
    """0 all good; 3 a rollback failed or an outcome is unknown; 1 failed, refused, partial or
    not attempted. 3 wins.

    A node whose rollback failed, or whose state is unknown, needs a person; a failure that was
    rolled back does not.
    """
    outcomes = {host.outcome for host in hosts}
    if outcomes & {Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN}:
        return 3
    return 0 if all(outcome.good for outcome in outcomes) else 1


def worst(steps: Iterable[StepResult]) -> Outcome:
    """The outcome of a node, from its steps. A node without any is unchanged."""
    return min(
        (step.outcome for step in steps),
        key=lambda outcome: outcome.rank,
        default=Outcome.UNCHANGED,
    )


def ending_text(code: int | None, output: str) -> str:
    """`ended with 1: ...`: the exit code of a command, and what a script of nodevet's says in its
    output, else the end of it: apt repeats a whole hook after what the hook said."""
    own = [line for line in output.splitlines() if line.startswith("nodevet: ")]
    text = (own[-1] if own else output.strip())[-BRIEF:]
    return f"ended with {code}{f': {text}' if text else ''}"
