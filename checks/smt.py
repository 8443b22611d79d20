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

from typing import ClassVar

from nodevet.checking.one_value import itself, node_value, ok_if
from nodevet.evidence.cpu import Cpu
from nodevet.model import Area, CheckParams, Finding

FIRMWARE = "in the firmware's set-up: Hyper-Threading, SMT mode"
ADVICE = {
    "notsupported": "the CPU has no SMT, or the firmware switched it off: see its set-up",
    "forceoff": "remove nosmt=force from the kernel's command line and reboot",
}


class Params(CheckParams):
    """`smt: true`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(params: Params, active: bool, control: str | None) -> Finding:
    right = active is params.enabled
    return ok_if(
        right,
        expected=params.enabled,
        actual=active,
        why=f"control: {control[:40]}" if control and not right else "",
        advice=ADVICE.get(control or "", FIRMWARE),
    )


CHECK = node_value(
    Params,
    Cpu,
    "smt_active",
    also=("smt_control",),
    judge=judge,
    learn=itself,
    label="CPUs",
    area=Area.CPU,
    unasked="on or off is a site's choice: say smt: true",
)
