"""No variable that hides GPUs or slows jobs is set for all processes of the node.

**Why it matters.** A CUDA_VISIBLE_DEVICES that someone left in /etc/environment hides GPUs from
every job. NCCL_P2P_DISABLE or NCCL_IB_DISABLE, set once to work around a fault, costs bandwidth
ever after. A folder of stubs in LD_LIBRARY_PATH hides the driver. Profiling switches slow every
kernel. No job script shows these variables.

**Read from** /etc/environment, /etc/environment.d, /etc/profile and /etc/profile.d, bash's own
files, /etc/nccl.conf, /etc/ld.so.preload, DefaultEnvironment of systemd, and the environment of
`units`, with their files. nodevet reads only variables of CUDA, NCCL and the like. It does not read
the value of a variable that may hold a secret.

**Verdicts.** A variable counts wherever a file sets it, even inside a condition of a script. By
default these fail: CUDA_VISIBLE_DEVICES; LD_PRELOAD, LD_AUDIT and the contents of
/etc/ld.so.preload; LD_LIBRARY_PATH with a folder of stubs; switches that turn NCCL's paths off;
debuggers, profilers, blocking launches and core dumps of CUDA. `allow` names variables that may be
set. `expected` gives the only value that a variable may have; the variable must be set. `absent`
names variables that must not be set; a name may end in `*`.

**To fix it** remove the line from the file that the finding names, or correct it. Sessions and
services that already run keep their old variables.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN, of_section, reads_of
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.environment import Environment, Variable
from nodevet.evidence.services import UNIT_NAME
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    Verdict,
    fail,
    ok,
    unknown,
)

HARMFUL = (
    "/etc/ld.so.preload",
    "COMPUTE_PROFILE",
    "CUDA_AUTO_BOOST",
    "CUDA_COREDUMP_FILE",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    "CUDA_PROFILE",
    "CUDA_VISIBLE_DEVICES",
    "LD_AUDIT",
    "LD_PRELOAD",
    "NSIGHT_CUDA_DEBUGGER",
    "OPENCL_PROFILE",
)
SWITCHES = (
    "CUDA_CACHE_DISABLE",
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_COLLNET_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_NVLS_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
)
LEARNT = re.compile(r"(?:CUDA|NCCL|NVSHMEM|UCX|GLOO|TORCH|PYTORCH)_[A-Z0-9_]{1,80}\Z")
OFF = ("0", "", "false", "FALSE")

NAME = r"(/etc/ld\.so\.preload|[A-Z_][A-Z0-9_]{1,90})"
Name = Annotated[str, Meta(pattern=f"^{NAME}$")]
Pattern = Annotated[str, Meta(pattern=rf"^{NAME[:-1]}\*?)$")]
UnitName = Annotated[str, Meta(pattern=rf"^{UNIT_NAME}\.(service|socket|timer|slice|mount)$")]


class Params(CheckParams):
    """`environment: {expected: {NCCL_IB_HCA: mlx5}, absent: [NCCL_SOCKET_*]}` or
    `environment: {allow: [LD_PRELOAD], units: [slurmd.service]}`"""

    expected: Mapping[Name, str] = {}
    """Variables that must be set, with the only allowed value of each."""
    absent: tuple[Pattern, ...] = ()
    allow: tuple[Pattern, ...] = ()
    """Variables that may be set, although they are harmful by default."""
    units: tuple[UnitName, ...] = ()
    """Units whose environment is read, too."""

    def __post_init__(self) -> None:
        both = sorted({*self.expected} & {*self.absent})
        if both:
            raise ValueError(f"{', '.join(both)}: in expected and in absent")


@of_section(Environment, "environment")
def judge(environment: Environment, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if environment.variables is None or environment.unread is None:
        yield unread(
            Subject(), environment, "variables" if environment.variables is None else "unread"
        )
        return
    variables = list(environment.variables)
    gaps = [f"not read: {environment.unread}"] if environment.unread else []
    units = {unit.name: unit for unit in environment.units or ()}
    left_out = [name for name in params.units if name not in units or units[name].variables is None]
    for name in params.units:
        unit = Subject(kind="unit", id=name)
        if name not in units:
            yield unknown(unit, why=NOT_ASKED, advice=READ_AGAIN)
        elif (unit_variables := units[name].variables) is None:
            yield unread(unit, units[name], "variables")
        else:
            variables += unit_variables
    if any(variable.name is None for variable in variables):
        gaps.append("the name of a variable was not read")
    places: dict[str, list[Variable]] = {}
    for variable in variables:
        places.setdefault(variable.name or "", []).append(variable)
    failures = list(judge_set(places, params))
    yield from failures
    for name, value in params.expected.items():
        finding = judge_expected(name, value, places.get(name, []))
        is_partial = (gaps or left_out) and finding.verdict is Verdict.OK
        why = "not every file that may set it was read"
        yield unknown(finding.subject, why=why) if is_partial else finding
    for why in gaps:
        yield unknown(why=why)
    if not failures and not gaps and not left_out:
        yield ok(expected="no harmful variables", actual="none")


def judge_set(places: Mapping[str, list[Variable]], params: Params) -> Iterator[Finding]:
    """The failures: variables that must not be set, or not to this value."""
    for name, variables in sorted(places.items()):
        if name in params.expected:
            continue
        unwanted = is_among(name, params.absent)
        if not unwanted and is_among(name, params.allow):
            continue
        bad = [variable for variable in variables if unwanted or is_harmful(name, variable.value)]
        if bad:
            subject = Subject(kind="variable", id=name)
            yield fail(
                subject,
                expected=expected_text(name, unwanted),
                actual=places_text(bad),
                advice=REMOVE,
            )


def is_among(name: str, patterns: Sequence[str]) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


def is_harmful(name: str, value: str | None) -> bool:
    if name in HARMFUL:
        return True
    if name in SWITCHES:
        return value not in OFF
    return name == "LD_LIBRARY_PATH" and (value is None or is_stubs(value))


def is_stubs(value: str) -> bool:
    """
    >>> is_stubs("/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH"), is_stubs("/opt/stubs-free/lib")
    (True, False)
    """
    return any("stubs" in part.split("/") for part in value.split(":"))


def expected_text(name: str, unwanted: bool) -> str:
    if name == "LD_LIBRARY_PATH" and not unwanted:
        return "no folder of stubs"
    return "off or not set" if name in SWITCHES and not unwanted else "not set"


def judge_expected(name: str, value: str, variables: list[Variable]) -> Finding:
    subject = Subject(kind="variable", id=name)
    if not variables:
        return fail(subject, expected=value, actual="not set", advice=SET)
    unread_variable = next((variable for variable in variables if variable.value is None), None)
    if unread_variable is not None:
        return unread(subject, unread_variable, "value")
    other = [variable for variable in variables if variable.value != value]
    if other:
        return fail(subject, expected=value, actual=places_text(other), advice=SET)
    return ok(subject, expected=value, actual=value)


def places_text(variables: list[Variable]) -> str:
    """Values with their places: `1 (/etc/environment:3)`."""
    return ", ".join(
        f"{'set' if row.value is None else row.value or 'empty'} ({row.place or '?'})"
        for row in variables
    )


REMOVE = "remove the line, or name the variable in `allow` if it is intended"
SET = "set it in one place: /etc/environment, /etc/nccl.conf for NCCL, or the unit's drop-in"


def learn(evidence: Evidence) -> Any:
    """The variables that have one value, and the harmful variables of this node, for a person to
    review."""
    environment = evidence[Environment].data
    if environment is None or environment.variables is None or environment.unread != "":
        return None
    values: dict[str, set[str | None]] = {}
    for variable in environment.variables:
        values.setdefault(variable.name or "", set()).add(variable.value)
    harmful = {name for name in values if any(is_harmful(name, value) for value in values[name])}
    expected = {
        name: next(iter(one_value))
        for name, one_value in sorted(values.items())
        if len(one_value) == 1
        and None not in one_value
        and name not in harmful
        and LEARNT.match(name)
    }
    learnt = {"expected": expected, "allow": sorted(harmful)}
    return {key: value for key, value in learnt.items() if value}


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "environment.units[].name",
        *reads_of("environment.units[].variables[]", "name", "value"),
        "environment.unread",
        *reads_of("environment.variables[]", "name", "value"),
    ),
    judge=judge,
    unasked=(
        "what a login sets is up to the site: say environment: {} to find variables that hide GPUs"
    ),
    severity=Severity.WARNING,
    asks=lambda params: {"environment": params.units},
    learn=learn,
)
