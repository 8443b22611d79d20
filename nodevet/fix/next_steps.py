"""What to do after a run of fixes, for each group of hosts, with the command that does it. Pure."""

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from nodevet.fixing.result import (
    BY_HAND,
    CANARY_NOT_REBOOTED,
    CANARY_PENDING,
    CONFIRMED,
    LEFT_OUT,
    NO_FURTHER,
    HostResult,
    Outcome,
    Refusal,
    Result,
    named_of,
)
from nodevet.sheet.text import nodeset

RESUMABLE = ("interrupted", "the run ended before its turn", "the controller ended")
FULL = f"{NO_FURTHER}: "
NOT_FOUND = "name not found"
BUDGET = ("the canary failed", " may")
PLAN = "plan.json"  # in the folder of a run


class NextStep(msgspec.Struct, frozen=True):
    """`why` and when, then the command; of these hosts."""

    hosts: tuple[str, ...]
    why: str
    command: str = ""

    @property
    def text(self) -> str:
        """`gpu[1-2]: look at them; then: nodevet ...`."""
        return f"{nodeset(self.hosts)}: {self.why}" + (f": {self.command}" if self.command else "")


def next_steps(
    result: Result, folder: str = "RUN", inventories: Sequence[str] = ("INVENTORY",)
) -> list[NextStep]:
    """What is to be done, the most urgent first; nothing for hosts that are as was asked.

    `folder`: of the run, as a word of a command line. `inventories`: by which its hosts are
    reached; none if by their names.
    """
    reach = "".join(f"-i {shlex.quote(each)} " for each in inventories)
    named = baselines_of(result)
    groups: dict[tuple[str, str], list[str]] = {}
    for host in sorted(result.hosts, key=lambda host: host.outcome.rank):
        for key in (_after_rollback if result.kind == "rollback" else _after_apply)(host):
            step = _at_hand(host, *key) if CONFIRMED in result.options else key
            groups.setdefault(step, []).append(host.host)
    found = []
    for (why, command), hosts in groups.items():
        some = _word(hosts)
        known = {
            "folder": folder,
            "plan": f"{folder}/{PLAN}",
            "reach": reach,
            "named": named,
            "hosts": some,
            "targets": f"{reach}--limit {some}" if reach else some,
        }
        found.append(NextStep(tuple(hosts), why, command.format(**known)))
    return found


RESUME = "nodevet apply --resume {folder}{named}"
PLAN_AGAIN = "nodevet plan {targets}{named}"
PLAN_FAILED = f"{PLAN_AGAIN} --again"  # what failed lately is not planned without it
APPLY_AGAIN = "nodevet apply {plan} {reach}--host {hosts}{named}"
FIX_AGAIN = "nodevet apply @local"
FIX_FAILED = f"{FIX_AGAIN} --again"
CHECK = "nodevet check {targets}{named}"
CHECK_HERE = "nodevet check @local{named}"
ROLL_BACK = "nodevet rollback {folder} --host {hosts}"


def baselines_of(result: Result) -> str:
    """` -b FILE` for each baseline that the run was given by name, for a command after it."""
    return "".join(f" -b {shlex.quote(name)}" for name in named_of(result.options))


def _after_apply(host: HostResult) -> Iterator[tuple[str, str]]:
    """(why, the command's form)."""
    outcome = host.outcome
    if BY_HAND in host.why:
        yield "the journal and the plan disagree: look at them by hand", ""
    elif outcome is Outcome.ROLLBACK_FAILED:
        yield "look at what is not as it was, then try again to revert it", ROLL_BACK
    elif outcome is Outcome.UNKNOWN:
        yield "once reachable, have it read again", RESUME
    elif outcome is Outcome.FAILED:
        yield "remove the cause, then plan again", PLAN_FAILED
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL):
        yield _refused(host)
    elif outcome is Outcome.NOT_ATTEMPTED:
        yield _not_attempted(host)
    elif outcome is Outcome.PENDING:
        yield "after the reboot, reset or restart that it waits for, confirm it", CHECK


def _at_hand(host: HostResult, why: str, command: str) -> tuple[str, str]:
    """The same after `nodevet apply @local`: the rest is planned and confirmed again."""
    if command == CHECK:
        return why, CHECK_HERE
    begun = host.outcome is Outcome.UNKNOWN or command == ROLL_BACK
    if begun or not command:
        return why, command
    again = FIX_FAILED if command == PLAN_FAILED else FIX_AGAIN
    return f"{why}, with the same options", again


def _refused(host: HostResult) -> tuple[str, str]:
    if host.refusal is Refusal.LOCKED:
        return "once the other controller has ended, go on", RESUME
    if host.refusal is Refusal.UNREACHABLE:
        if host.why == NOT_FOUND:
            return "name the inventory that says where it is, and go on", f"{RESUME} -i INVENTORY"
        return "once reachable, go on", RESUME
    if host.refusal is Refusal.PRECONDITION:
        return "once what is said there is so, apply it there", APPLY_AGAIN
    if host.refusal is Refusal.MANAGER:
        return "disable what else manages the setting, or drop the fix; then plan again", PLAN_AGAIN
    return "plan again", PLAN_AGAIN


def _not_attempted(host: HostResult) -> tuple[str, str]:
    if host.why == LEFT_OUT:
        return "left out by --host; to apply the plan there too", APPLY_AGAIN
    if host.why.startswith(RESUMABLE):
        return "go on", RESUME
    if host.why.startswith(FULL):
        return "free some space for the run, then go on", RESUME
    if host.why.startswith(CANARY_PENDING):
        return "once the canary had the reboot, reset or restart that it waits for, go on", RESUME
    if host.why.startswith(CANARY_NOT_REBOOTED):
        return "remove what kept the canary from its reboot, then go on", RESUME
    if host.why.startswith(BUDGET[0]) or host.why.endswith(BUDGET[1]):
        return "remove the cause of what failed, then apply the plan there", APPLY_AGAIN
    return "plan again", PLAN_AGAIN


def _after_rollback(host: HostResult) -> Iterator[tuple[str, str]]:
    outcome = host.outcome
    if BY_HAND in host.why:
        yield "the journal and the plan disagree: look at them by hand", ""
    elif outcome is Outcome.ROLLBACK_FAILED:
        yield "look at what is not as it was, then try again", ROLL_BACK
    elif outcome is Outcome.UNKNOWN:
        yield "once reachable, try again", ROLL_BACK
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL) and not host.refusal:
        yield "something else changed it since, and it is left alone: look at it", ""
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL, Outcome.NOT_ATTEMPTED):
        yield "once the reason is gone, try again", ROLL_BACK
    elif outcome is Outcome.PENDING:
        yield "after the reboot, reset or restart that it waits for, confirm it", ROLL_BACK


def _word(hosts: Sequence[str]) -> str:
    """A nodeset as one word of a shell; a name that a nodeset cannot hold is left to the user."""
    text = nodeset(hosts)
    return "HOSTS" if '"' in text else shlex.quote(text)
