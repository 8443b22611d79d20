"""How a run ended, node by node and step by step: what its report renders, and result.json."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from nodevet.fix import File, Kernel, Risk, Run, State, Unit
from nodevet.model import Value
from nodevet.remedy.approval.policy import Approval

SCHEMA = 2


class Outcome(str, Enum):
    """How one node, or one step, ended. Worst first: a node ends as the worst of its steps."""

    HALF = "half done"  # putting it back failed too: the words say exactly what is what
    DOUBT = "in doubt"  # the node did not come back to be looked at
    FAILED = "failed and rolled back"
    PARTLY = "partly done"  # some is done, or put back, and stays; the rest was refused, or left
    REFUSED = "refused"  # nothing was written
    UNTOUCHED = "untouched"
    PENDING = "pending"  # in place, in force from the next restart, reset or reboot on
    ROLLED_BACK = "rolled back"  # as a rollback was asked for
    PERSISTS = "persists"  # the check said ok after a reboot
    DONE = "done"  # the check says ok
    RIGHT = "already right"  # nothing was written

    @property
    def rank(self) -> int:
        return list(Outcome).index(self)

    @property
    def good(self) -> bool:
        return self.rank >= Outcome.PENDING.rank


class Refusal(str, Enum):
    """Why a node was refused."""

    STALE = "stale"  # not what the plan was made on
    LOCKED = "locked"  # another controller is at it
    OWNER = "owner"  # something else on the node sets the same
    GUARD = "guard"  # in use, or not drained
    UNREACHABLE = "unreachable"  # no session, or no usable evidence


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One action that was begun. `ok` is None where nobody heard how it ended."""

    action: File | Kernel | Unit | Run
    ok: bool | None
    code: int | None = None
    output: str = ""


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended, with all that the report shows of it."""

    id: str
    fix: str
    subjects: tuple[str, ...]
    wanted: Value
    observed: Value
    unit: str = ""
    risk: Risk
    outcome: Outcome = Outcome.UNTOUCHED
    why: str = ""
    before: tuple[State, ...] = ()
    after: tuple[State, ...] = ()
    ran: tuple[Ran, ...] = ()
    verdicts: Mapping[str, str] = {}  # subject -> what the check said last; empty: not asked


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
    stopped: str = ""  # why no further node was begun
    in_doubt: str = ""  # why the run as a whole is: it has no end, or not all of it was kept
    hosts: tuple[HostResult, ...] = ()

    @property
    def exit_code(self) -> int:
        """As `exit_code`; 3, too, where the run itself is in doubt."""
        if self.in_doubt:
            return 3
        code = exit_code(self.hosts)
        return code or int(not all(self.good(host.outcome) for host in self.hosts))

    def good(self, outcome: Outcome) -> bool:
        """Whether that is what was asked for: an apply does not ask for being rolled back."""
        return outcome.good and not (self.kind == "apply" and outcome is Outcome.ROLLED_BACK)


def exit_code(hosts: Iterable[HostResult]) -> int:
    """0 all good; 3 something is in doubt or half done; 1 failed, refused, partly done or
    untouched. 3 wins.

    The state of a node that is half done or in doubt needs a person; a failure that was
    rolled back does not.
    """
    outcomes = {host.outcome for host in hosts}
    if outcomes & {Outcome.HALF, Outcome.DOUBT}:
        return 3
    return 0 if all(outcome.good for outcome in outcomes) else 1


def worst(steps: Iterable[StepResult]) -> Outcome:
    """The outcome of a node, from its steps. A node without any is already right."""
    return min((step.outcome for step in steps), key=lambda one: one.rank, default=Outcome.RIGHT)
