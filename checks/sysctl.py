"""Kernel parameters have the expected values.

**Why it matters.** Automatic NUMA balancing moves pages under a running job, swappiness decides
what a node does when memory is short, and socket buffer sizes limit network throughput. They are
set by packages, by tuned profiles and by hand, and drift apart unnoticed.

**Read from** /proc/sys, only what the baseline names. Names are spelled as sysctl(8) has them:
dots between the parts, and a dot inside a part is a slash, `net.ipv4.conf.eth0/1.forwarding`.

**Verdicts.** A number is compared as a number, words one by one, however they are spaced. A
parameter that the kernel does not have is unknown: its name may be wrong, or the module that
brings it (br_netfilter, nf_conntrack) is not loaded. So is one that saved evidence does not have,
because the probe was not asked for it.

**To fix it** `sysctl -w` sets it now, a file in /etc/sysctl.d at every boot. Check first what
else sets it: tuned, another file of `systemd-analyze cat-config sysctl.d`, the kubelet.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from nodevet.checking.named import each_named
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.sysctl import Parameters
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Severity,
    Subject,
    Value,
    fail,
    ok,
    refuse,
)

NUMBER = re.compile(r"-?[0-9]{1,20}")
LOWEST, HIGHEST = -(1 << 63), (1 << 64) - 1
NO_SLASHES_ALONE = r"(?!.*\./+(\.|$))"

Name = Annotated[  # as sysctl(8) has it
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
    """What a parameter may be, where more than one value is right."""

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
            force_setattr(self, "one_of", tuple(map(spaced, self.one_of)))


Wanted = int | Text | ParameterLimits


class Params(CheckParams):
    """`sysctl: {kernel.numa_balancing: 0, vm.swappiness: {maximum: 10}}` or
    `sysctl: {net.ipv4.tcp_rmem: 4096 131072 16777216, vm.overcommit_memory: {one_of: [0, 1]}}`"""

    whole: ClassVar[str] = "parameters"

    parameters: Mapping[Name, Wanted] = {}

    def __post_init__(self) -> None:
        settle(self, "parameters")


def settle(params: Struct, field: str) -> None:
    """For a `__post_init__`: the parameters in this field as they are compared.

    Raises FieldError for a number that no parameter can have.
    """
    wanted: Mapping[str, Wanted] = getattr(params, field)
    refuse(
        FieldError("must be a number of at most 64 bits", field, name)
        for name, one in wanted.items()
        for value in values(one)
        if isinstance(value, int) and not LOWEST <= value <= HIGHEST
    )
    told = {
        name: one if isinstance(one, ParameterLimits) else spaced(one)
        for name, one in wanted.items()
    }
    force_setattr(params, field, told)


def spaced(value: int | str) -> int | str:
    """The words of a text apart by one space, as the evidence has them."""
    return " ".join(value.split()) if isinstance(value, str) else value


def values(wanted: int | str | ParameterLimits) -> tuple[int | str | None, ...]:
    if isinstance(wanted, ParameterLimits):
        return (wanted.minimum, wanted.maximum, *(wanted.one_of or ()))
    return (wanted,)


NO_NUMBER = "it is not a number: give its value as text, or check that the name is right"


def number(text: str) -> int | None:
    """A decimal number of at most 64 bits; None for any other text."""
    found = int(text) if NUMBER.fullmatch(text) else None
    return found if found is not None and LOWEST <= found <= HIGHEST else None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Parameters]
    listed = (section.data.parameters if section.data else None) or ()
    found = {parameter.name: parameter for parameter in listed}
    asked = params.parameters
    for each in each_named(section, asked, label="sysctl", listed="parameters", kind="sysctl"):
        if isinstance(each, Finding):
            yield each
            continue
        subject, name = each
        value = found[name].value
        if value is None:
            yield unread(subject, found[name], "value")
        else:
            yield judge_value(subject, asked[name], value)


def judge_value(subject: Subject, wanted: int | str | ParameterLimits, text: str) -> Finding:
    actual = number(text)
    shown = text if actual is None or isinstance(wanted, str) else actual
    if not isinstance(wanted, ParameterLimits):
        return (ok if equal(wanted, text) else fail)(subject, expected=wanted, actual=shown)
    if wanted.one_of:
        fits = any(equal(each, text) for each in wanted.one_of)
        expected = " or ".join(map(str, wanted.one_of))
        return (ok if fits else fail)(subject, expected=expected, actual=shown)
    if actual is None:
        return fail(subject, expected=span(wanted), actual=shown, advice=NO_NUMBER)
    fits = (wanted.minimum is None or actual >= wanted.minimum) and (
        wanted.maximum is None or actual <= wanted.maximum
    )
    return (ok if fits else fail)(subject, expected=span(wanted), actual=shown)


def equal(wanted: int | str, text: str) -> bool:
    """
    >>> equal(10, "10"), equal("4096 8192", "4096 8192"), equal(10, "10 20")
    (True, True, False)
    """
    return number(text) == wanted if isinstance(wanted, int) else " ".join(text.split()) == wanted


def span(limits: ParameterLimits) -> str:
    if limits.minimum is None:
        return f"at most {limits.maximum}"
    if limits.maximum is None:
        return f"at least {limits.minimum}"
    return f"{limits.minimum} to {limits.maximum}"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"sysctl": tuple(params.parameters)}


def learn(evidence: Evidence) -> Value:
    """Of what was asked for."""
    data = evidence[Parameters].data
    read = {each.name: each.value for each in (data.parameters if data else None) or ()}
    found = {name: text for name, text in read.items() if text is not None}
    numbers = {name: number(text) for name, text in found.items()}
    return {
        name: text if (value := numbers[name]) is None else value for name, text in found.items()
    } or None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=("sysctl.parameters[].name", "sysctl.parameters[].value"),
    judge=judge,
    unasked="for HGX boards (NUMA balancing): other parameters are a site's own",
    learn=learn,
    severity=Severity.WARNING,
    asks=asks,
)
