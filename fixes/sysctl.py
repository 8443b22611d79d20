"""Set kernel parameters to the expected values, now and at every boot.

**Now** one write to the file in /proc/sys of each parameter that fails. If the baseline
gives limits, the nearest one is written; of several values, the first.

**At every boot** `/etc/sysctl.d/90-nodevet-sysctl.conf` with every parameter that the baseline
gives a value. One with limits is in it if it has, or was just set to, the value that is written
here; one that is within its limits otherwise has another manager, and is left to it.
systemd-sysctl reads the file early in the boot. Files that sort after it, tuned and the
kubelet conflict.

**Risk** live: jobs go on under the new values.

**Rollback** restores the earlier values and the file.

**What it cannot do.** A parameter that the kernel does not have, or that may not be read, is
not written now. One that comes with a module which is loaded late is set by udev when that
happens, for net.* at least. An empty value cannot be written.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.sysctl import ParameterLimits, Params, equal, number
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.sysctl import Parameter, Parameters
from nodevet.fixing import kernel_files
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.collectors.sysctl import path_of
from nodevet.resource import Actions

CONF = "/etc/sysctl.d/90-nodevet-sysctl.conf"


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all that fails; see `FIX`."""
    failed = {f.subject.id: f for f in findings if f.verdict is Verdict.FAIL}
    if not failed:
        return
    section = evidence[Parameters].data
    known = {each.name: each for each in (section.parameters if section else None) or ()}
    conf: dict[str, str] = {}
    for name, wanted in params.parameters.items():
        found = known.get(name)
        if name in failed:
            if found is None or found.value is None:
                raise FixError(f"{name}: {why(found)}")
            if failed[name].actual not in (found.value, number(found.value)):
                raise FixError(f"{name}: the finding is not of this evidence")
        value = target(name, wanted, found)
        if value is not None:
            conf[name] = value
    if not set(failed) <= set(conf):
        raise FixError("the findings are not of this evidence")
    now = {name: conf[name] for name in failed}
    yield kernel_files.change(failed, now, actions(conf, now))


def why(found: Parameter | None) -> str:
    return NOT_ASKED if found is None else found.why("value")


def target(name: str, wanted: int | str | ParameterLimits, found: Parameter | None) -> str | None:
    """What the file says of a parameter; None if it is as expected and left to another owner.

    Raises FixError if that depends on a value that was not read, or cannot be written.
    """
    if not isinstance(wanted, ParameterLimits):
        if wanted == "":
            raise FixError(f"{name}: an empty value cannot be written")
        return str(wanted)
    if found is None or found.value is None:
        raise FixError(f"{name}: {why(found)}, and the file must speak of it too")
    if wanted.one_of:
        first, *others = wanted.one_of
        if first == "":
            raise FixError(f"{name}: an empty value cannot be written")
        return None if any(equal(each, found.value) for each in others) else str(first)
    actual, low, high = number(found.value), wanted.minimum, wanted.maximum
    if actual is None:
        raise FixError(f"{name}: its value now is not a number")
    if low is not None and actual <= low:
        return str(low)
    if high is not None and actual >= high:
        return str(high)
    return None


def actions(conf: Mapping[str, str], now: Mapping[str, str]) -> Actions:
    """`conf`: what is set at every boot, `now`: what is set now; values by name."""
    lines = [f"{name} = {value}" for name, value in sorted(conf.items())]
    return kernel_files.actions(CONF, lines, {path_of(name): now[name] for name in now})


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("transparent_hugepage",))
