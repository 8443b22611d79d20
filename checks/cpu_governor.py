"""Every CPU frequency policy runs the governor that the baseline names.

**Why it matters.** A core that must first ramp up from an idle clock delays
kernel launches, collectives and data loading, so GPUs wait for it. Nodes that
differ in it make a synchronous job as slow as the slowest.

**Read from** `/sys/devices/system/cpu/cpufreq/policy*/scaling_governor`; see
Documentation/admin-guide/pm/cpufreq.rst in the kernel tree.

**Verdicts.** Where the kernel offers no cpufreq (most virtual machines) the node is
exempt: the hypervisor sets the clock.

**To put it right** a tmpfiles.d rule that writes `performance` to
`/sys/devices/system/cpu/cpufreq/policy*/scaling_governor` sets it now
(`systemd-tmpfiles --create`) and at every boot. Look for other owners first:
tuned, cpupower.service, power-profiles-daemon.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from nodevet.evidence import CpufreqPolicies, Evidence, numbers, unread
from nodevet.model import Check, Finding, Severity, Subject, Want, compare, exempt, unknown


class CpuGovernor(Want):
    """`cpu_governor: performance`"""

    bare: ClassVar[str] = "governor"

    governor: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


def judge(evidence: Evidence, want: CpuGovernor) -> Iterator[Finding]:
    section = evidence.cpufreq
    if section.status == "absent":
        yield exempt(why="the kernel offers no cpufreq here")
    elif section.data is None:
        yield unknown(why=f"cpufreq: {section.why}")
    elif section.data.policies is None:
        yield unknown(why=f"policies: {section.data.why('policies')}")
    elif not section.data.policies:
        yield exempt(why="the kernel offers no cpufreq here")
    else:
        for policies in section.data.policies:
            yield judge_policies(policies, want.governor)


def judge_policies(policies: CpufreqPolicies, wanted: str) -> Finding:
    subject = Subject(kind="cpufreq", id=policies.policies)
    if policies.governor is None:
        return unread(subject, policies, "governor")
    if policies.governor == wanted:
        return compare(subject, expected=wanted, actual=wanted)
    offered = policies.governors_available
    lacks = offered is not None and wanted not in offered
    return compare(
        subject,
        expected=wanted,
        actual=policies.governor,
        why=count(policies),
        advice=only(policies) if lacks else "",
    )


def only(policies: CpufreqPolicies) -> str:
    """What to do where the governor is not among those that the driver offers."""
    driver = policies.driver or "this driver"
    told = f"{driver} offers {', '.join(policies.governors_available or ())} only"
    if driver in ("intel_pstate", "amd-pstate-epp"):
        other = "intel_pstate" if driver == "intel_pstate" else "amd_pstate"
        return f"{told}: want one of these, or boot with {other}=passive, which offers the others"
    return f"{told}: want one of these, or have the kernel load another cpufreq driver"


def count(policies: CpufreqPolicies) -> str:
    """How many CPUs, as `64 CPUs`; nothing where that was not read."""
    cpus = numbers(policies.cpus)
    return f"{len(cpus)} CPUs" if cpus else ""


CHECK = Check(
    wants=CpuGovernor,
    reads=("cpufreq.policies[].governor",),
    judge=judge,
    severity=Severity.WARNING,
)
