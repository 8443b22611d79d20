"""What to do after a run of fixes, for each group of hosts, with the command. Pure."""

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
    NOTHING_HELPED,
    POWER_TEXT,
    REQUESTED,
    SWITCHED,
    SWITCHING,
    HostResult,
    Outcome,
    Refusal,
    Result,
    StepResult,
    baselines_given,
)
from nodevet.resource import ONE_WAY, boot, gpu_reset, kind_of
from nodevet.resource.boot import POWER_MAY_HELP, STAYED_UP
from nodevet.sheet.text import nodeset

RESUMABLE = ("interrupted", "the run ended before its turn", "the controller ended")
FULL = f"{NO_FURTHER}: "
NOT_FOUND = "name not found"
BUDGET = ("the canary failed", " may")
PLAN = "plan.json"  # in the folder of a run


class NextStep(msgspec.Struct, frozen=True):
    """What to do about some hosts: `why`, which may say when, and the command."""

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
    """The next steps, most urgent first; none for hosts that ended as requested.

    `folder`: of the run, as a word of a command line. `inventories`: those that name its hosts;
    empty if hosts are reached by their names.
    """
    inventory_options = "".join(f"-i {shlex.quote(name)} " for name in inventories)
    baselines = baselines_of(result)
    groups: dict[tuple[str, str], list[str]] = {}
    for host in sorted(result.hosts, key=lambda host: host.outcome.rank):
        for key in (_after_rollback if result.kind == "rollback" else _after_apply)(host):
            if CONFIRMED in result.options and key[1] == PLAN_BOOT:
                continue  # nodevet does not reboot the machine that it runs on
            step = _for_local_fix(host, *key) if CONFIRMED in result.options else key
            groups.setdefault(step, []).append(host.host)
    steps = []
    for (why, command), hosts in groups.items():
        word = _shell_word(hosts)
        words = {
            "folder": folder,
            "plan": f"{folder}/{PLAN}",
            "reach": inventory_options,
            "named": baselines,
            "hosts": word,
            "hook": shlex.quote(str(result.options.get("drain_hook", ""))),
            "targets": f"{inventory_options}--limit {word}" if inventory_options else word,
        }
        steps.append(NextStep(tuple(hosts), why, command.format(**words)))
    return steps


RESUME = "nodevet apply --resume {folder}{named}"
CYCLE = f"{RESUME} --power-cycle --override"
BMC = "nodevet bmc show {targets}"
PLAN_AGAIN = "nodevet plan {targets}{named}"
PLAN_FAILED = f"{PLAN_AGAIN} --again"  # what failed lately is not planned without it
PLAN_REBOOT = f"{PLAN_FAILED} --reboot --drain-hook {{hook}} -o {PLAN}"
PLAN_BOOT = f"{PLAN_AGAIN} --reboot --drain-hook {{hook}} -o {PLAN}"
PLAN_CYCLE = f"{PLAN_FAILED} --power-cycle --drain-hook {{hook}} -o {PLAN}"
APPLY_AGAIN = "nodevet apply {plan} {reach}--host {hosts}{named}"
FIX_AGAIN = "nodevet apply @local"
FIX_FAILED = f"{FIX_AGAIN} --again"
CHECK = "nodevet check {targets}{named}"
CHECK_HERE = "nodevet check @local{named}"
ROLL_BACK = "nodevet rollback {folder} --host {hosts}"


def baselines_of(result: Result) -> str:
    """` -b FILE` for each baseline that the run was given with -b, for the next command."""
    return "".join(f" -b {shlex.quote(name)}" for name in baselines_given(result.options))


def _after_apply(host: HostResult) -> Iterator[tuple[str, str]]:
    """(why, template of the command) for a host after an apply."""
    outcome = host.outcome
    if BY_HAND in host.why:
        yield "the journal and the plan disagree: look at them by hand", ""
    elif outcome is Outcome.ROLLBACK_FAILED:
        yield "look at the settings that were not restored, then try the rollback again", ROLL_BACK
    elif outcome is Outcome.UNKNOWN:
        if REQUESTED in host.why and POWER_TEXT in host.why:
            yield "if it hangs in the reboot, switch it off and on by its BMC", CYCLE
        if SWITCHED in host.why and STAYED_UP in host.why:
            yield "the BMC switched another machine, or none: correct `bmc` in the inventory", BMC
        elif SWITCHED in host.why:
            yield "a power cycle did not bring it back: look at its console and its BMC", BMC
        if SWITCHING in host.why:
            yield "its power cycle did not end with the power on: look at its BMC", BMC
            yield "then go on, which switches it on if it is off", RESUME
        else:
            yield "once reachable, read it again", RESUME
    elif outcome is Outcome.FAILED:
        yield _failed(host)
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL):
        yield _refused(host)
    elif outcome is Outcome.NOT_ATTEMPTED:
        yield _not_attempted(host)
    elif outcome is Outcome.PENDING:
        if any(map(_awaits_reboot, host.steps)):
            yield "it was not rebooted: plan its reboot", PLAN_BOOT
        yield "after the reboot, reset or restart that it waits for, confirm it", CHECK


def _for_local_fix(host: HostResult, why: str, command: str) -> tuple[str, str]:
    """The step after `nodevet apply @local`, which plans and asks again."""
    if command == CHECK:
        return why, CHECK_HERE
    goes_on = host.outcome is Outcome.UNKNOWN or command == ROLL_BACK
    if goes_on or not command:
        return why, command
    plan_command = FIX_FAILED if command == PLAN_FAILED else FIX_AGAIN
    return f"{why}, with the same options", plan_command


def _awaits_reboot(step: StepResult) -> bool:
    """Whether the step is a reboot, which is still to come."""
    reboots = any(kind_of(state.resource) is boot.KIND for state in step.before)
    return reboots and step.outcome is Outcome.PENDING


def _has_reset(step: StepResult) -> bool:
    return any(kind_of(state.resource) is gpu_reset.KIND for state in step.before)


def _failed(host: HostResult) -> tuple[str, str]:
    """`why` may hold what a command printed on the node: it says no more than what was done."""
    if host.rebooted and NOTHING_HELPED in host.why:
        return "a power cycle did not help: look at the part, or replace it (RMA)", BMC
    if host.rebooted and POWER_MAY_HELP in host.why:
        why = "a reboot did not help: if the inventory names the BMC, switch it off and on"
        return why, PLAN_CYCLE
    if gpu_reset.NEXT in host.why and any(map(_has_reset, host.steps)):
        return "a reset did not help: reboot the node", PLAN_REBOOT
    return "remove the cause, then plan again", PLAN_FAILED


def _refused(host: HostResult) -> tuple[str, str]:
    if host.refusal is Refusal.LOCKED:
        return "once the other controller has ended, go on", RESUME
    if host.refusal is Refusal.UNREACHABLE:
        if host.why == NOT_FOUND:
            return "name the inventory that has its address, and go on", f"{RESUME} -i INVENTORY"
        return "once reachable, go on", RESUME
    if host.refusal is Refusal.PRECONDITION:
        return "once that precondition holds, apply the plan there", APPLY_AGAIN
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
        return "once the canary's reboot, reset or restart is done, go on", RESUME
    if host.why.startswith(CANARY_NOT_REBOOTED):
        return "remove the reason why the canary was not rebooted, then go on", RESUME
    if host.why.startswith(BUDGET[0]) or host.why.endswith(BUDGET[1]):
        return "remove the cause of the failure, then apply the plan there", APPLY_AGAIN
    return "plan again", PLAN_AGAIN


def _after_rollback(host: HostResult) -> Iterator[tuple[str, str]]:
    outcome = host.outcome
    if BY_HAND in host.why:
        yield "the journal and the plan disagree: look at them by hand", ""
    elif outcome is Outcome.ROLLBACK_FAILED:
        yield "look at the settings that were not restored, then try again", ROLL_BACK
    elif outcome is Outcome.UNKNOWN:
        yield "once reachable, try again", ROLL_BACK
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL) and not host.refusal:
        if not all(reason.endswith(ONE_WAY) for reason in host.why.split("; ")):
            yield "something else changed it since, so nodevet did not touch it: look at it", ""
    elif outcome in (Outcome.REFUSED, Outcome.PARTIAL, Outcome.NOT_ATTEMPTED):
        yield "once the reason is gone, try again", ROLL_BACK
    elif outcome is Outcome.PENDING:
        yield "after the reboot, reset or restart that it waits for, confirm it", ROLL_BACK


def _shell_word(hosts: Sequence[str]) -> str:
    """A nodeset as one word of a shell; `HOSTS` if a name cannot be in a nodeset."""
    text = nodeset(hosts)
    return "HOSTS" if '"' in text else shlex.quote(text)
