"""Set kernel parameters to the expected values, now and at every boot.

**Now** one write to the file in /proc/sys of each parameter that fails. If the baseline sets
limits, the fix writes the nearest one; if it lists values, the first.

**At every boot** `/etc/sysctl.d/90-nodevet-sysctl.conf` has every parameter for which the baseline
sets one value. A parameter with limits is in the file only if the node has exactly the value that
the fix writes. If the node has another value within the limits, something else manages the
parameter, and the fix does not change it. systemd-sysctl reads the file early in the boot. Files
that sort after it, tuned and the kubelet conflict.

**Risk** live: jobs continue with the new values.

**Rollback** restores the earlier values and the file.

**What it cannot do.** It cannot write a parameter if the kernel does not have it or nodevet may
not read it. If a module is loaded later, udev sets its parameters, at least those of net.*. The
fix cannot write an empty value.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.sysctl import ParameterLimits, Params, equal, number
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.sysctl import Parameter, Parameters
from nodevet.fixing import kernel_files
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.remote.probe.collectors.sysctl import path_of
from nodevet.resource import Actions

CONF = "/etc/sysctl.d/90-nodevet-sysctl.conf"


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change for all parameters that fail; see `FIX`."""
    failed = {f.subject.id: f for f in findings}
    section = evidence[Parameters].data
    parameters = (section.parameters if section else None) or ()
    by_name = {parameter.name: parameter for parameter in parameters}
    conf: dict[str, str] = {}
    for name, expected in params.parameters.items():
        parameter = by_name.get(name)
        if name in failed:
            if parameter is None or parameter.value is None:
                raise FixError(f"{name}: {missing_reason(parameter)}")
            if failed[name].actual not in (parameter.value, number(parameter.value)):
                raise FixError(f"{name}: the finding does not come from this evidence")
        value = target(name, expected, parameter)
        if value is not None:
            conf[name] = value
    if not set(failed) <= set(conf):
        raise FixError("the findings do not come from this evidence")
    values_now = {name: conf[name] for name in failed}
    yield kernel_files.change(failed, values_now, actions(conf, values_now))


def missing_reason(parameter: Parameter | None) -> str:
    return NOT_ASKED if parameter is None else parameter.why("value")


def target(
    name: str, expected: int | str | ParameterLimits, parameter: Parameter | None
) -> str | None:
    """The value of a parameter in the file; None if it is as expected and has another manager.

    Raises FixError if this depends on a value that was not read, or cannot be written."""
    if not isinstance(expected, ParameterLimits):
        if expected == "":
            raise FixError(f"{name}: nodevet cannot write an empty value")
        return str(expected)
    if parameter is None or parameter.value is None:
        raise FixError(
            f"{name}: {missing_reason(parameter)}, but the file needs a value for it too"
        )
    if expected.one_of:
        preferred, *alternatives = expected.one_of
        if preferred == "":
            raise FixError(f"{name}: nodevet cannot write an empty value")
        return (
            None if any(equal(value, parameter.value) for value in alternatives) else str(preferred)
        )
    actual, low, high = number(parameter.value), expected.minimum, expected.maximum
    if actual is None:
        raise FixError(f"{name}: its present value is not a number")
    if low is not None and actual <= low:
        return str(low)
    if high is not None and actual >= high:
        return str(high)
    return None


def actions(conf: Mapping[str, str], values_now: Mapping[str, str]) -> Actions:
    """`conf`: the values to set at every boot; `values_now`: the values to set now; by name."""
    lines = [f"{name} = {value}" for name, value in sorted(conf.items())]
    return kernel_files.actions(
        CONF, lines, {path_of(name): values_now[name] for name in values_now}
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("transparent_hugepage",))
