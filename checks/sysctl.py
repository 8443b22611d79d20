"""Kernel parameters have the expected values.

**Why it matters.** Automatic NUMA balancing moves pages under a running job, swappiness decides how
a node behaves when memory is short, and socket buffer sizes limit network throughput. Packages,
tuned profiles and people set them, and the nodes diverge unnoticed.

**Read from** /proc/sys, only the parameters in the baseline. Names are those of sysctl(8): dots
between the parts; a dot inside a part becomes a slash, `net.ipv4.conf.eth0/1.forwarding`.

**Verdicts.** Numbers compare as numbers; texts compare word by word, with any spacing. A parameter
that the kernel does not have is unknown: its name may be wrong, or its module (br_netfilter,
nf_conntrack) is not loaded. A parameter that saved evidence lacks is unknown too, because the probe
did not read it.

**To fix it** `sysctl -w` sets it now, a file in /etc/sysctl.d sets it at every boot. First check
what else sets it: tuned, another file of `systemd-analyze cat-config sysctl.d`, the kubelet.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from nodevet.checking.expected import is_within, span
from nodevet.checking.named import each_named, reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.sysctl import Parameters
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    NeededAction,
    Severity,
    Subject,
    Value,
    fail,
    refuse,
)

NUMBER = re.compile(r"-?[0-9]{1,20}")
LOWEST, HIGHEST = -(1 << 63), (1 << 64) - 1
NO_SLASHES_ALONE = r"(?!.*\./+(\.|$))"

Name = Annotated[  # as sysctl(8) spells it
    str,
    Meta(
        pattern=rf"^{NO_SLASHES_ALONE}[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_/:@+-]+)+$",
        max_length=256,
        title="the name of a kernel parameter with dots, such as kernel.numa_balancing",
    ),
]
Text = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$",
        max_length=1024,
        title="one line of text without control characters",
    ),
]


class ParameterLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The allowed values of a parameter, if more than one is right."""

    minimum: int | None = None
    maximum: int | None = None
    one_of: Annotated[tuple[int | Text, ...], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.minimum, self.maximum) if end is not None]
        if bool(ends) == (self.one_of is not None):
            raise ValueError("give minimum, maximum or both, or one_of")
        if ends != sorted(ends):
            raise ValueError("the minimum is above the maximum")
        if self.one_of:
            force_setattr(self, "one_of", tuple(map(single_spaced, self.one_of)))


Wanted = int | Text | ParameterLimits


class Params(CheckParams):
    """`sysctl: {kernel.numa_balancing: 0, vm.swappiness: {maximum: 10}}` or
    `sysctl: {net.ipv4.tcp_rmem: 4096 131072 16777216, vm.overcommit_memory: {one_of: [0, 1]}}`"""

    whole: ClassVar[str] = "parameters"

    parameters: Mapping[Name, Wanted] = {}

    def __post_init__(self) -> None:
        normalize(self, "parameters")


def normalize(params: Struct, field: str) -> None:
    """For a `__post_init__`: bring the parameters of this field into the form in which they
    compare.

    Raises FieldError for a number that no parameter can have."""
    parameters: Mapping[str, Wanted] = getattr(params, field)
    refuse(
        FieldError("must be a number of at most 64 bits", field, name)
        for name, limits in parameters.items()
        for value in values(limits)
        if isinstance(value, int) and not LOWEST <= value <= HIGHEST
    )
    spaced_values = {
        name: limits if isinstance(limits, ParameterLimits) else single_spaced(limits)
        for name, limits in parameters.items()
    }
    force_setattr(params, field, spaced_values)


def single_spaced(value: int | str) -> int | str:
    """The words of a text with one space between them, as the evidence has them."""
    return " ".join(value.split()) if isinstance(value, str) else value


def values(expected: int | str | ParameterLimits) -> tuple[int | str | None, ...]:
    if isinstance(expected, ParameterLimits):
        return (expected.minimum, expected.maximum, *(expected.one_of or ()))
    return (expected,)


NO_NUMBER = "it is not a number: give its value as text, or check its name"


def number(text: str) -> int | None:
    """A decimal number of at most 64 bits; None for any other text."""
    value = int(text) if NUMBER.fullmatch(text) else None
    return value if value is not None and LOWEST <= value <= HIGHEST else None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section, expected = evidence[Parameters], params.parameters
    for entry in each_named(section, expected, label="sysctl", listed="parameters", kind="sysctl"):
        if isinstance(entry, Finding):
            yield entry
            continue
        subject, parameter = entry
        if parameter.value is None:
            yield unread(subject, parameter, "value")
        else:
            yield judge_value(subject, expected[parameter.name], parameter.value)


def judge_value(subject: Subject, limits: int | str | ParameterLimits, text: str) -> Finding:
    actual = number(text)
    shown = text if actual is None or isinstance(limits, str) else actual
    if not isinstance(limits, ParameterLimits):
        return ok_if(equal(limits, text), subject, expected=limits, actual=shown)
    if limits.one_of:
        is_allowed = any(equal(choice, text) for choice in limits.one_of)
        return ok_if(
            is_allowed, subject, expected=" or ".join(map(str, limits.one_of)), actual=shown
        )
    expected = span(limits.minimum, limits.maximum)
    if actual is None:
        return fail(subject, expected=expected, actual=shown, advice=NO_NUMBER)
    is_allowed = is_within(actual, limits.minimum, limits.maximum)
    return ok_if(is_allowed, subject, expected=expected, actual=shown)


def equal(expected: int | str, text: str) -> bool:
    """
    >>> equal(10, "10"), equal("4096 8192", "4096 8192"), equal(10, "10 20")
    (True, True, False)
    """
    if isinstance(expected, int):
        return number(text) == expected
    return " ".join(text.split()) == expected


def learn(evidence: Evidence) -> Value:
    """The values of the parameters that the probe read."""
    data = evidence[Parameters].data
    pairs = ((record.name, record.value) for record in (data.parameters if data else None) or ())
    texts = {name: text for name, text in pairs if text is not None}
    numbers = {name: number(text) for name, text in texts.items()}
    return {
        name: text if (value := numbers[name]) is None else value for name, text in texts.items()
    } or None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=reads_of("sysctl.parameters[]", "name", "value"),
    judge=judge,
    unasked="for HGX boards (NUMA balancing): each site chooses its other parameters",
    learn=learn,
    severity=Severity.WARNING,
    asks=lambda params: {"sysctl": tuple(params.parameters)},
    actions={NO_NUMBER: NeededAction.SITE},
)
