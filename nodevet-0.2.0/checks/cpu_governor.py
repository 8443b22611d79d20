"""Every CPU frequency policy uses the expected governor.

**Why it matters.** A core that must first ramp up from a low clock delays kernel launches,
collectives and data loading, so GPUs wait for it. If nodes have different governors, a synchronous
job is as slow as the slowest node.

**Read from** `/sys/devices/system/cpu/cpufreq/policy*/scaling_governor`; see
Documentation/admin-guide/pm/cpufreq.rst in the kernel tree.

**Verdicts.** If the kernel offers no cpufreq (most virtual machines), the node is not applicable:
the hypervisor sets the clock. A policy whose CPUs are all offline is not judged: its files show old
values, or none. If an online CPU has no policy, the node has an unknown finding besides the
findings about the other policies.

**To fix it** a tmpfiles.d rule that writes `performance` to
`/sys/devices/system/cpu/cpufreq/policy*/scaling_governor` sets it now (`systemd-tmpfiles --create`)
and at every boot. First check which other programs set it: tuned, cpupower.service,
power-profiles-daemon.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.cpufreq import each_policies, subject_of
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import usual
from nodevet.evidence.core import unread
from nodevet.evidence.cpufreq import Cpufreq, CpufreqPolicies
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.model import Area, Check, CheckParams, Finding, NeededAction, Severity, Value, compare


class Params(CheckParams):
    """`cpu_governor: performance`"""

    bare: ClassVar[str] = "governor"

    governor: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", title="a governor's name")]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for policies in each_policies(evidence):
        if isinstance(policies, Finding):
            yield policies
        else:
            yield judge_policies(policies, params.governor)


def judge_policies(policies: CpufreqPolicies, expected: str) -> Finding:
    subject = subject_of(policies)
    if policies.governor is None:
        return unread(subject, policies, "governor")
    if policies.governor == expected:
        return compare(subject, expected=expected, actual=expected)
    offered = policies.governors_available
    lacks = offered is not None and expected not in offered
    return compare(
        subject,
        expected=expected,
        actual=policies.governor,
        why=cpu_count_text(policies),
        advice=offered_text(policies) if lacks else "",
    )


OFFERS_LESS = "use one of these, or"


def offered_text(policies: CpufreqPolicies) -> str:
    """What to do if the driver does not offer the governor."""
    driver = policies.driver or "this driver"
    sentence = f"{driver} offers only {', '.join(policies.governors_available or ())}"
    if driver in ("intel_pstate", "amd-pstate-epp"):
        option = "intel_pstate" if driver == "intel_pstate" else "amd_pstate"
        return f"{sentence}: {OFFERS_LESS} boot with {option}=passive, which offers the others"
    return f"{sentence}: {OFFERS_LESS} have the kernel load another cpufreq driver"


def cpu_count_text(policies: CpufreqPolicies) -> str:
    """The number of CPUs, as `64 CPUs`; empty if it was not read."""
    cpus = numbers(policies.cpus)
    return f"{len(cpus)} CPUs" if cpus else ""


def learn(evidence: Evidence) -> Value:
    data = evidence[Cpufreq].data
    return usual(policy.governor for policy in (data.policies if data else None) or ())


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=("cpu.online", *reads_of("cpufreq.policies[]", "cpus", "governor")),
    judge=judge,
    unasked="for servers: on a workstation it is a matter of taste",
    learn=learn,
    severity=Severity.WARNING,
    actions={OFFERS_LESS: NeededAction.SITE},
)
