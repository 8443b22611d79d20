"""The CPU frequency policies that a check judges one by one."""

from collections.abc import Iterator

from nodevet.evidence.core import unread
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.cpufreq import Cpufreq, CpufreqPolicies
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers, spans
from nodevet.model import Finding, Subject, not_applicable, unknown

NO_CPUFREQ = "the kernel has no cpufreq here"


def each_policies(evidence: Evidence) -> Iterator[CpufreqPolicies | Finding]:
    """The policies with online CPUs; for each other policy the finding that says why it is not
    judged.

    Never empty. If an online CPU has no policy, an unknown finding follows.
    """
    section = evidence[Cpufreq]
    if section.status == "absent":
        yield not_applicable(why=NO_CPUFREQ)
    elif section.data is None:
        yield unknown(why=f"cpufreq: {section.why}")
    elif section.data.policies is None:
        yield unknown(why=f"policies: {section.data.why('policies')}")
    elif not section.data.policies:
        yield not_applicable(why=NO_CPUFREQ)
    else:
        for policies in section.data.policies:
            if policies.cpus == "":
                yield not_applicable(subject_of(policies), why="all its CPUs are offline")
            elif policies.cpus is None:  # settings without a CPU may be old
                yield unread(subject_of(policies), policies, "cpus")
            else:
                yield policies
        doubt = coverage_gap(evidence)
        if doubt:
            yield unknown(why=doubt)


def subject_of(policies: CpufreqPolicies) -> Subject:
    return Subject(kind="cpufreq", id=policies.policies)


def coverage_gap(evidence: Evidence) -> str:
    """Why the policies may not cover every online CPU; empty if they do."""
    cpus, cpufreq = evidence[Cpu], evidence[Cpufreq]
    if cpus.data is None:
        return f"CPUs: {cpus.why}"
    online = numbers(cpus.data.online)
    if not online:
        return f"online: {'not a list of CPUs' if cpus.data.online else cpus.data.why('online')}"
    covered: set[int] = set()
    for policies in (cpufreq.data.policies if cpufreq.data else None) or ():
        cpus_of_policy = numbers(policies.cpus)
        if policies.cpus is not None and cpus_of_policy is None:
            return f"{subject_of(policies).label}: cpus: not a list of CPUs"
        covered |= cpus_of_policy or set()
    missing = online - covered
    if not missing:
        return ""
    read = len(online) - len(missing)
    return f"the policies cover {read} of {len(online)} online CPUs, but not {spans(missing)}"
