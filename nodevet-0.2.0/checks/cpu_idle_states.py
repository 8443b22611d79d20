"""CPUs do not enter idle states that take too long to leave.

**Why it matters.** A core in a deep idle state takes 100 us or more to wake up. This delay is added
to every interrupt of the NIC and to every wake-up of the thread that launches kernels, and every
rank waits for the slowest. Latency profiles (tuned's latency-performance) forbid deep states, but
have no effect if one service does not start.

**Read from** `latency` and `disable` of the states of every CPU,
`/sys/devices/system/cpu/cpu*/cpuidle/state*`, and `/dev/cpu_dma_latency`, the latency limit that
programs such as tuned set for the kernel.

**Verdicts.** Fails if any CPU has an enabled state that takes longer to leave than the baseline's
maximum, unless `/dev/cpu_dma_latency` holds the kernel to that maximum or less; only root can read
that file. Without an idle driver there is no state that could fail. A virtual machine is not
applicable: the hypervisor decides.

**To fix it** `tuned-adm profile latency-performance`, or `cpupower idle-set -D 10` at every boot,
or `intel_idle.max_cstate=1 processor.max_cstate=1` on the kernel's command line.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of, unread_section
from nodevet.checking.one_value import first_unread
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.cpuidle import NO_LIMIT_US, Cpuidle, IdleState
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.lists import numbers, spans
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

METAL = ("none", "container")
ADVICE = (
    "start tuned with a latency profile (`tuned-adm active` shows which it runs), or disable the "
    "deep states at boot: `cpupower idle-set -D MAXIMUM`"
)


class Params(CheckParams):
    """`cpu_idle_states: 10`"""

    bare: ClassVar[str] = "maximum_us"

    maximum_us: Annotated[int, Meta(ge=0, le=1_000_000)]
    """The longest allowed time to leave a state, in microseconds."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section, host = evidence[Cpuidle], evidence[HostInfo]
    if host.data is None or host.data.virtualization is None:
        why = host.why if host.data is None else host.data.why("virtualization")
        yield unknown(why=f"virtualization: {why}")
    elif host.data.virtualization not in METAL:
        yield not_applicable(why="the hypervisor decides how the CPUs of a virtual machine sleep")
    elif section.data is None:
        yield unread_section(section, "cpuidle")
    else:
        metal = host.data.virtualization == "none"
        yield judge_states(section.data, evidence, params.maximum_us, metal)


def judge_states(idle: Cpuidle, evidence: Evidence, most: int, metal: bool) -> Finding:
    """`metal`: whether this is not a container; a container does not see the machine's /dev."""
    expected = f"at most {most} us"
    limit = idle.latency_limit_us
    if limit is None and metal and idle.errors.get("latency_limit_us") == "ENOENT":
        limit = NO_LIMIT_US
    if limit is not None and 0 <= limit <= most:
        return ok(expected=expected, actual=f"held to {limit} us by /dev/cpu_dma_latency")
    if finding := first_unread(NODE, idle, "states", "count"):
        return finding
    states = idle.states or ()
    deep = [state for state in states if (state.latency_us or 0) > most and state.enabled_cpus]
    if deep and limit is None:
        why = idle.why("latency_limit_us")
        return unknown(why=f"{state_text(deep[-1])} is enabled, and latency_limit_us: {why}")
    if deep:
        details = {state_text(state): f"CPUs {state.enabled_cpus}" for state in deep}
        worst = max(deep, key=lambda each: each.latency_us or 0)
        return fail(expected=expected, actual=state_text(worst), details=details, advice=ADVICE)
    doubt = why_unsure(idle, states, evidence)
    if doubt:
        return unknown(why=doubt)
    enabled = [state for state in states if state.enabled_cpus]
    deepest = max(enabled, key=lambda state: state.latency_us or 0, default=None)
    return ok(expected=expected, actual=state_text(deepest) if deepest else "no idle state")


def state_text(state: IdleState) -> str:
    return f"{state.name or 'a state'} {state.latency_us} us"


def why_unsure(idle: Cpuidle, states: tuple[IdleState, ...], evidence: Evidence) -> str:
    """Why a CPU may have a deeper state than the evidence shows; empty if it cannot."""
    if len(states) != idle.count:
        return f"{len(states)} of {idle.count} kinds of states were read"
    for state in states:
        for field in ("latency_us", "enabled_cpus", "cpus"):
            if getattr(state, field) is None:
                return f"{field}: {state.why(field)}"
        if (state.latency_us or 0) < 0:
            return f"latency_us: {state.latency_us} is not valid"
        if numbers(state.enabled_cpus) is None or numbers(state.cpus) is None:
            return f"enabled_cpus: {(state.enabled_cpus or '')[:60]}, of {(state.cpus or '')[:60]}"
    if not states:
        return (
            ""
            if idle.driver == "none"
            else f"no idle state was found, and the driver is {driver_text(idle)}"
        )
    cpus = evidence[Cpu]
    online = numbers(cpus.data.online) if cpus.data is not None else None
    if not online:
        return "cpu: the online CPUs are not known"
    covered_cpus = frozenset().union(*(numbers(state.cpus) or () for state in states))
    missing_cpus = online - covered_cpus
    return f"no idle state was read for CPUs {spans(missing_cpus)}" if missing_cpus else ""


def driver_text(idle: Cpuidle) -> str:
    return idle.driver[:60] if idle.driver else idle.why("driver")


def learn(evidence: Evidence) -> int | None:
    idle = evidence[Cpuidle].data
    enabled = [
        state.latency_us for state in (idle.states if idle else None) or () if state.enabled_cpus
    ]
    limit = idle.latency_limit_us if idle else None
    latencies = [state for state in enabled if state is not None]
    if not latencies or limit is None:
        return None
    return max(latencies) if limit >= NO_LIMIT_US else min(max(latencies), limit)


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        *reads_of("cpuidle", "latency_limit_us", "driver", "count"),
        *reads_of("cpuidle.states[]", "latency_us", "cpus", "enabled_cpus"),
        "cpu.online",
        "host.virtualization",
    ),
    judge=judge,
    unasked="only a site knows how late a CPU may wake up: say cpu_idle_states: 10",
    severity=Severity.WARNING,
    asks=lambda params: {"cpuidle": ("states",)},
    learn=learn,
)
