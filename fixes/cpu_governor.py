"""Set the governor of every CPU frequency policy to the expected one, now and at every boot.

**Now** `systemd-tmpfiles --create` with the rule below, as at every boot.

**At every boot** `/etc/tmpfiles.d/nodevet-cpu-governor.conf`, one line for all policies; see
tmpfiles.d(5), `w`. A policy whose CPUs are all offline (for example with SMT off) takes no
governor; then the rule has a line for each of the other policies, and CPUs that come back later
fail until you plan again. systemd reads the rule early in the boot and whenever a package asks for
it. The rule is the only manager of the setting; cpupower.service and power-profiles-daemon
conflict with it.

**TuneD** if its active profile sets the governor, nodevet writes no rule. It writes the profile
`/etc/tuned/nodevet-cpu-governor/tuned.conf`, and activates it after the active one:
`tuned-adm profile ACTIVE nodevet-cpu-governor`. TuneD then sets the governor, now and at every
boot.

**Risk** live: only clocks change.

**Rollback** restores the governor of each policy, and the rule. With intel_pstate and amd-pstate in
active mode the governor `performance` also sets the energy performance preference, and keeps it;
the rollback restores the preference, too. With TuneD it removes nodevet's profile, and TuneD sets
what the others say.

**What it cannot do.** If TuneD does not start at boot or runs scripts, or if a profile of the site
includes nodevet's, a person must set the governor in TuneD. nodevet refuses a governor that a
policy does not offer: choose another driver on the kernel's command line. If the driver is a module
that is loaded late (acpi-cpufreq in some kernels), its policies may appear after the rule;
`--verify-reboot` shows this. The fix does not set the preference itself: under `performance` the
kernel sets it.
"""

from collections.abc import Iterator, Sequence

from nodevet.checking.cpufreq import coverage_gap
from nodevet.checks.cpu_governor import Params
from nodevet.evidence.cpufreq import Cpufreq, CpufreqPolicies
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.fixing import tuned
from nodevet.fixing.kernel_files import conf, rule
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions, Resource, RunCommand

RULE = "/etc/tmpfiles.d/nodevet-cpu-governor.conf"
POLICIES = "/sys/devices/system/cpu/cpufreq"


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all policies that fail; see `FIX`."""
    section = evidence[Cpufreq].data
    groups = (section.policies if section else None) or ()
    if not groups:
        raise FixError("the CPU frequency policies could not be read")
    for group in groups:  # the rule sets all of them
        if group.cpus != "":
            refuse(group, params.governor)
    unread = coverage_gap(evidence)
    if unread:
        raise FixError(f"the rule would name policies that were not read: {unread}")
    by_id = {group.policies: group for group in groups}
    preferences, governors, observed = [], [], {}
    for finding in failed:
        policies = by_id.get(finding.subject.id)
        if policies is None:
            raise FixError(f"{finding.subject.label}: the evidence does not have this policy")
        observed[finding.subject.label] = finding.actual
        for number in sorted(numbers(policies.policies) or ()):
            governors.append(resource(number, "scaling_governor"))
            if policies.epp is not None:
                preferences.append(resource(number, "energy_performance_preference"))
    values = list(observed.values())
    change = PlannedChange(
        expected=params.governor,
        actual=values[0] if values.count(values[0]) == len(values) else observed,
        subjects=tuple(observed),
        actions=actions(params.governor, active(section)),
        # a rollback restores the last one first: the governor, then the preference
        resources=(Resource(kind="file", name=RULE), *preferences, *governors),
        risk=Risk.LIVE,
    )
    options = {"governor": params.governor}
    sections = tuned.section("cpu", options)
    yield tuned.by_tuned(change, "cpu_governor", evidence, options, sections)


def active(cpufreq: Cpufreq | None) -> tuple[int, ...]:
    """The policies that the rule names one by one; empty if it names all at once."""
    if cpufreq is None:
        return ()
    groups = cpufreq.policies or ()
    if not cpufreq.inactive and all(group.cpus for group in groups):
        return ()
    online = [numbers(group.policies) or () for group in groups if group.cpus]
    return tuple(sorted({number for policies in online for number in policies}))


def refuse(policies: CpufreqPolicies, governor: str) -> None:
    """Raises FixError if these policies do not offer the governor, or if it was not read what they
    offer."""
    label = f"cpufreq {policies.policies[:60]}"
    if not numbers(policies.policies):
        raise FixError(f"{label}: not a list of policies")
    governors = policies.governors_available
    if governors is None:
        raise FixError(f"{label}: governors_available: {policies.why('governors_available')}")
    if governor not in governors:
        driver = policies.driver or "its driver"
        raise FixError(f"{label}: {driver} offers {', '.join(governors) or 'none'}, not {governor}")


def resource(policy: int, file: str) -> Resource:
    return Resource(kind="kernel", name=f"{POLICIES}/policy{policy}/{file}")


def actions(governor: str, policies: Sequence[int] = ()) -> Actions:
    """`policies`: the policies to set; all if empty."""
    lines = [
        rule(f"{POLICIES}/policy{policy}/scaling_governor", governor) for policy in policies or "*"
    ]
    return (
        conf(RULE, lines),
        RunCommand(words=("systemd-tmpfiles", "--create", RULE)),
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("gpu_clocks",), asks=tuned.asks)
