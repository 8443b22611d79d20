"""CPU frequencies are not limited: turbo, energy preference, lowest and highest frequency.

**Why it matters.** A power-saving profile, a benchmark or a cooling incident may leave a frequency
cap behind. Such a cap, turbo that is switched off or an energy preference of `power` slows down the
work that feeds the GPUs, even with the right governor.

**Read from** /sys/devices/system/cpu/cpufreq/policy*/: scaling_{min,max}_freq, cpuinfo_max_freq,
energy_performance_preference; intel_pstate/no_turbo, cpufreq/boost. The check `cpu_governor` judges
the governor.

**Verdicts.** `uncapped` (true by default) requires scaling_max_freq to reach the hardware's
maximum. If the kernel offers no cpufreq (most virtual machines), no energy preference (`epp`) or no
switch for turbo, the question is not applicable: the hypervisor or the firmware decides.

**To fix it** `cpupower frequency-set -u MAX -d MIN`, `cpupower set --turbo-boost 1`, or a
tmpfiles.d rule for the file. Look for other programs that set these values: tuned,
power-profiles-daemon, thermald.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.cpufreq import NO_CPUFREQ, each_policies, subject_of
from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if, usual
from nodevet.evidence.cpufreq import Cpufreq, CpufreqPolicies
from nodevet.evidence.document import Evidence
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Value,
    Verdict,
    not_applicable,
    unknown,
)

SWITCHES = {"no_turbo": "intel_pstate/no_turbo", "boost": "cpufreq/boost"}
NO_SWITCH = "ENOENT"
OTHERS = "then look for other programs that set it: tuned, power-profiles-daemon, thermald"
LIMITS = f"`cpupower frequency-set` and `cpupower set` change it; {OTHERS}"
TURBO = f"`cpupower set --turbo-boost`, or the firmware's set-up; {OTHERS}"


class Params(CheckParams):
    """`cpu_frequency: {turbo: true, epp: performance}` or
    `cpu_frequency: {minimum_mhz: 2000, uncapped: false}`"""

    turbo: bool | None = None
    """Whether turbo must be on or off: Turbo Boost, Core Performance Boost."""
    epp: Words | None = None
    """One or several allowed energy preferences: performance, balance_performance, ..."""
    minimum_mhz: Annotated[float, Meta(gt=0)] | None = None
    """The least value of the lowest frequency that the governor may choose."""
    uncapped: bool = True
    """Whether the governor must be able to choose the hardware's highest frequency."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    by_policy = params.epp is not None or params.minimum_mhz is not None or params.uncapped
    if by_policy:
        entries = tuple(each_policies(evidence))
        drivers = {
            entry.driver for entry in entries if not isinstance(entry, Finding) and entry.epp
        }
        for policies in entries:
            if isinstance(policies, Finding):
                yield policies
            else:
                yield from judge_policies(policies, params, has_epp=policies.driver in drivers)
    if params.turbo is not None:
        yield judge_turbo(evidence, params.turbo)
    elif not by_policy:
        yield unknown(why="the baseline names nothing to check")


def judge_policies(
    policies: CpufreqPolicies, params: Params, *, has_epp: bool
) -> Iterator[Finding]:
    """`has_epp`: whether other policies of this driver report an energy preference."""
    subject = subject_of(policies)
    aspects = [*limits(policies, params, has_epp=has_epp)]
    if not aspects:
        yield not_applicable(subject, why="its driver has no energy preference")
    yield from aspect_findings(subject, aspects)


def limits(policies: CpufreqPolicies, params: Params, *, has_epp: bool) -> Iterator[Aspect]:
    """The aspects of the values that the baseline gives; none for a preference that the driver
    lacks."""
    if params.epp is not None:
        if policies.epp is not None:
            right = matches(policies.epp, params.epp)
            expected = words_text(params.epp)
            yield aspect_if("epp", right, expected=expected, actual=policies.epp, advice=LIMITS)
        elif has_epp or policies.errors.get("epp") != NO_SWITCH:
            yield unread_aspect(policies, "epp")
    if params.minimum_mhz is not None:
        if (low := policies.scaling_min_khz) is None:
            yield unread_aspect(policies, "scaling_min_khz")
        else:
            expected_low = f"at least {params.minimum_mhz:g} MHz"
            right = low >= params.minimum_mhz * 1000
            yield aspect_if("minimum", right, expected=expected_low, actual=mhz(low), advice=LIMITS)
    if params.uncapped:
        why = why_unread(policies, "scaling_max_khz", "cpuinfo_max_khz")
        if why:
            yield unknown_aspect("maximum", why)
        else:
            limit, highest = policies.scaling_max_khz or 0, policies.cpuinfo_max_khz or 0
            right, expected = limit >= highest, mhz(highest)
            yield aspect_if("maximum", right, expected=expected, actual=mhz(limit), advice=LIMITS)


def why_unread(policies: CpufreqPolicies, *fields: str) -> str:
    """Why one of these frequencies is not known; empty if all are."""
    for field in fields:
        value = getattr(policies, field)
        if value is None:
            return f"{field}: {policies.why(field)}"
        if value <= 0:
            return f"{field}: {value}"
    return ""


def mhz(khz: int) -> str:
    return f"{khz / 1000:.10g} MHz"


def judge_turbo(evidence: Evidence, expected: bool) -> Finding:
    section = evidence[Cpufreq]
    if section.status == "absent" or (section.data and section.data.policies == ()):
        return not_applicable(why=NO_CPUFREQ)
    if section.data is None:
        return unknown(why=f"cpufreq: {section.why}")
    cpufreq = section.data
    switches = {"no_turbo": cpufreq.no_turbo, "boost": cpufreq.boost}
    if cpufreq.no_turbo is not None:
        actual = not cpufreq.no_turbo
    elif cpufreq.errors.get("no_turbo") == NO_SWITCH and cpufreq.boost is not None:
        actual = cpufreq.boost
    elif all(cpufreq.errors.get(field) == NO_SWITCH for field in switches):
        return not_applicable(why="the kernel has no switch for turbo here")
    else:
        field = "no_turbo" if cpufreq.errors.get("no_turbo") != NO_SWITCH else "boost"
        return unknown(why=f"{SWITCHES[field]}: {cpufreq.why(field)}")
    right = actual is expected
    return ok_if(right, expected={"turbo": expected}, actual={"turbo": actual}, advice=TURBO)


def learn(evidence: Evidence) -> Value:
    data = evidence[Cpufreq].data
    if data is None or not data.policies:
        return None
    fields: dict[str, Value] = {}
    turbo = judge_turbo(evidence, expected=True)
    if turbo.verdict in (Verdict.OK, Verdict.FAIL):
        fields["turbo"] = turbo.verdict is Verdict.OK
    if epp := usual(policy.epp for policy in data.policies):
        fields["epp"] = epp
    pairs = ((policy.scaling_max_khz, policy.cpuinfo_max_khz) for policy in data.policies)
    if any(low and high and low < high for low, high in pairs):
        fields["uncapped"] = False
    return fields


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        "cpu.online",
        *reads_of("cpufreq", "boost", "no_turbo"),
        *reads_of("cpufreq.policies[]", "cpuinfo_max_khz", "cpus", "driver", "epp"),
        *reads_of("cpufreq.policies[]", "scaling_max_khz", "scaling_min_khz"),
    ),
    judge=judge,
    unasked="some sites limit frequencies on purpose: say cpu_frequency: {} if yours does not",
    learn=learn,
    severity=Severity.WARNING,
)
