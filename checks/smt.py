"""SMT (Hyper-Threading) is on or off, as expected.

**Why it matters.** With SMT switched on or off after a BIOS reset a node has twice or half the
CPUs: masks of jobs no longer fit, schedulers count wrongly, and a synchronous job waits for the
node that differs.

**Read from** /sys/devices/system/cpu/smt/{active,control}.

**Verdicts.** Expected on and `notsupported` fails: the CPU has no SMT, or the firmware switched it
off. Expected off, everything fits in which no second thread is online.

**To fix it** in the firmware's set-up (Hyper-Threading, SMT mode). At run time `echo off >
/sys/devices/system/cpu/smt/control`, or `on`; `nosmt` in the kernel's command line at boot.
`forceoff` can be undone by a reboot only.
"""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.evidence.core import unread
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Severity, Value, compare, unknown

FIRMWARE = "in the firmware's set-up: Hyper-Threading, SMT mode"
ADVICE = {
    "notsupported": "the CPU has no SMT, or the firmware switched it off: see its set-up",
    "forceoff": "remove nosmt=force from the kernel's command line and reboot",
}


class Params(CheckParams):
    """`smt: true`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Cpu]
    if section.data is None:
        yield unknown(why=f"CPUs: {section.why}")
    elif section.data.smt_active is None:
        yield unread(NODE, section.data, "smt_active")
    else:
        actual, control = section.data.smt_active, section.data.smt_control or ""
        bad = actual is not params.enabled
        yield compare(
            NODE,
            expected=params.enabled,
            actual=actual,
            why=f"control: {control[:40]}" if bad and control else "",
            advice=ADVICE.get(control, FIRMWARE) if bad else "",
        )


def learn(evidence: Evidence) -> Value:
    data = evidence[Cpu].data
    return data.smt_active if data else None


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=("cpu.smt_active",),
    judge=judge,
    unasked="on or off is a site's choice: say smt: true",
    learn=learn,
    severity=Severity.WARNING,
)
