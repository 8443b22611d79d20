"""Set turbo, energy preference and the limits of CPU frequencies, now and at every boot.

**Now** one write to each file of sysfs with a wrong value: `no_turbo` and `max_perf_pct` of
intel_pstate, or `boost`; and `scaling_max_freq`, `scaling_min_freq` and
`energy_performance_preference` of each frequency policy.

**At every boot** `/etc/tmpfiles.d/nodevet-later-cpu-frequency.conf` sets what the baseline expects
of each policy, with one line for all policies if they need the same value. systemd applies this
file after that of `cpu_governor`.

**TuneD** if its active profile sets one of these values or a share of them (`min_perf_pct`),
nodevet writes no file of tmpfiles.d. It writes the profile
`/etc/tuned/nodevet-cpu-frequency/tuned.conf`, and activates it after the active one. TuneD's
plug-in for CPUs cannot set `scaling_max_freq` and `scaling_min_freq`, so the profile uses its
plug-in `sysfs`.

**Risk** live: only clocks change.

**Rollback** restores the earlier values and the file. With TuneD it removes nodevet's profile, and
TuneD restores the values that it found when it started.

**What it cannot do.** It sets no preference that the driver does not offer, and no lowest frequency
above the hardware's highest. Under the governor `performance`, some drivers accept only the
preference `performance`: then the kernel refuses the write, and nodevet rolls the step back. The
firmware may forbid turbo. tlp, auto-cpufreq and commands of cpupower that set these values conflict
with the fix. If TuneD does not start at boot or runs scripts, or if a profile of the site includes
nodevet's, a person must set the values in TuneD. nodevet does not see when thermald lowers the
highest frequency. CPUs that come online later keep their own limits.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checking.cpufreq import coverage_gap, subject_of
from nodevet.checking.expected import matches, patterns_in
from nodevet.checks.cpu_frequency import NO_SWITCH, SWITCHES, Params
from nodevet.evidence.cpufreq import Cpufreq, CpufreqPolicies
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.fixing import tuned
from nodevet.fixing.kernel_files import conf, rule
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding, Value
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel

RULE = "/etc/tmpfiles.d/nodevet-later-cpu-frequency.conf"
"""Its name comes after that of the rule of cpu_governor, as the preference must."""
FOLDER = "/sys/devices/system/cpu"
PERCENT = f"{FOLDER}/intel_pstate/max_perf_pct"
MAXIMUM, MINIMUM = "scaling_max_freq", "scaling_min_freq"
PREFERENCE = "energy_performance_preference"
KEYS = {
    MAXIMUM: (MAXIMUM, "max_perf_pct"),
    "max_perf_pct": ("max_perf_pct",),
    MINIMUM: (MINIMUM, "min_perf_pct"),
    PREFERENCE: (PREFERENCE, "energy_perf_bias"),
    "no_turbo": ("no_turbo",),
    "boost": ("boost",),
}
"""By the name of a file: what a profile of TuneD may set of it."""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    cpufreq = evidence[Cpufreq].data
    if cpufreq is None or cpufreq.policies is None:
        raise FixError("the CPU frequency policies could not be read")
    if unread := coverage_gap(evidence):
        raise FixError(f"the rule would name policies that were not read: {unread}")
    labels = {finding.subject.label for finding in failed}
    boot, now = dict[str, dict[str, str]](), dict[str, str]()  # by name of the file; by path
    for policies in cpufreq.policies:
        if not policies.cpus:
            continue
        values = values_of(policies, params)
        paths = {
            f"{FOLDER}/cpufreq/policy{number}/{name}": value
            for number in sorted(numbers(policies.policies) or ())
            for name, (value, _) in values.items()
        }
        for path, value in paths.items():
            boot.setdefault(path.split("/")[-1], {})[path] = value
        if subject_of(policies).label in labels:
            wrong = {name for name, (_, is_right) in values.items() if not is_right}
            now |= {path: value for path, value in paths.items() if path.split("/")[-1] in wrong}
    if params.uncapped and cpufreq.max_perf_pct is not None:
        boot[PERCENT] = {PERCENT: "100"}
        if cpufreq.max_perf_pct < 100 and labels - {""}:
            now[PERCENT] = "100"
    if params.turbo is not None:
        path, value = turbo(cpufreq, params.turbo)
        boot[path] = {path: value}
        if "" in labels:
            now[path] = value
        if params.turbo and "" in labels and not any(path.endswith(MAXIMUM) for path in now):
            boot.pop(MAXIMUM, None)  # turbo may raise the highest frequency, which is not known yet
    if not now:
        raise FixError("the findings do not come from this evidence")
    change = PlannedChange(
        expected=by_subject(failed, "expected"),
        actual=by_subject(failed, "actual"),
        subjects=tuple(finding.subject.label for finding in failed),
        actions=(
            conf(
                RULE, [rule(*pair) for name in boot for pair in at_boot(name, boot[name]).items()]
            ),
            *(WriteKernel(path=path, value=value) for path, value in now.items()),
        ),
        resources=(
            Resource(kind="file", name=RULE),
            *(Resource(kind="kernel", name=path) for path in now),
        ),
        risk=Risk.LIVE,
    )
    keys = {key for name in boot for key in KEYS[name.rpartition("/")[2]]}
    sections = "".join(section(name, at_boot(name, boot[name])) for name in boot)
    yield tuned.by_tuned(change, "cpu_frequency", evidence, keys, sections)


def at_boot(name: str, values: Mapping[str, str]) -> Mapping[str, str]:
    """What sets the files of one name at boot: a pattern for all policies if they are equal."""
    if len(values) > 1 and len(set(values.values())) == 1:
        return {f"{FOLDER}/cpufreq/policy*/{name}": next(iter(values.values()))}
    return values


def section(name: str, values: Mapping[str, str]) -> str:
    """The section of TuneD's profile for the files of one name. TuneD reverts the last section
    first: the lowest frequency before the highest."""
    return tuned.section(f"nodevet_{name.rpartition('/')[2]}", values, "sysfs")


def by_subject(findings: Sequence[Finding], side: str) -> Value:
    """The expected or actual values of all findings: one value, or each by its subject."""
    values = {finding.subject.label or "node": getattr(finding, side) for finding in findings}
    first, *others = values.values()
    return values if any(value != first for value in others) else first


def values_of(policies: CpufreqPolicies, params: Params) -> Mapping[str, tuple[str, bool]]:
    """The value of each file of these policies, and whether the file has it; the highest frequency
    first, since the lowest may not exceed it. Raises FixError."""
    label = f"cpufreq {policies.policies[:60]}"
    if not numbers(policies.policies):
        raise FixError(f"{label}: not a list of policies")
    values: dict[str, tuple[str, bool]] = {}
    highest, low = policies.cpuinfo_max_khz, policies.scaling_min_khz
    if params.uncapped or params.minimum_mhz is not None:
        if not highest or highest < 0:
            raise FixError(f"{label}: cpuinfo_max_khz: {policies.why('cpuinfo_max_khz')}")
        if params.uncapped:
            values[MAXIMUM] = (str(highest), (policies.scaling_max_khz or 0) >= highest)
        if params.minimum_mhz is not None:
            khz = round(params.minimum_mhz * 1000)
            if khz > highest:
                raise FixError(f"{label}: its highest frequency is {highest / 1000:g} MHz")
            if not params.uncapped and khz > (policies.scaling_max_khz or 0):
                raise FixError(f"{label}: its limit is lower: expect `uncapped: true`, too")
            if low is None:
                raise FixError(f"{label}: scaling_min_khz: {policies.why('scaling_min_khz')}")
            values[MINIMUM] = (str(max(khz, low)), low >= khz)
    if params.epp is not None and policies.epp is not None:
        is_right = matches(policies.epp, params.epp)
        word = policies.epp if is_right else patterns_in(params.epp)[0]
        if not is_right and word not in (policies.epp_available or ()):
            offers = ", ".join(policies.epp_available or ()) or "none"
            raise FixError(f"{label}: its driver offers {offers[:200]}, not {word}")
        values[PREFERENCE] = (word, is_right)
    return values


def turbo(cpufreq: Cpufreq, on: bool) -> tuple[str, str]:
    """The file that switches turbo, and its value. Raises FixError."""
    if cpufreq.no_turbo is not None:
        return f"{FOLDER}/{SWITCHES['no_turbo']}", str(int(not on))
    if cpufreq.boost is not None and cpufreq.errors.get("no_turbo") == NO_SWITCH:
        return f"{FOLDER}/{SWITCHES['boost']}", str(int(on))
    raise FixError("the kernel has no switch for turbo here")


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("cpu_governor",), asks=tuned.asks)
"""After the governor, which may set the preference."""
