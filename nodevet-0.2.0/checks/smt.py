"""SMT (Hyper-Threading) is on or off, as expected.

**Why it matters.** If a BIOS reset turns SMT on or off, the node has twice or half the CPUs: CPU
masks of jobs no longer fit, schedulers count wrongly, and a synchronous job waits for this node.

**Read from** /sys/devices/system/cpu/smt/{active,control}.

**Verdicts.** If on is expected, `notsupported` fails: the CPU has no SMT, or the firmware turned it
off. If off is expected, every state without an online second thread is ok.

**To fix it** change it in the firmware's set-up (Hyper-Threading, SMT mode). At run time `echo off
> /sys/devices/system/cpu/smt/control`, or `on`; `nosmt` in the kernel's command line at boot. Only
a reboot undoes `forceoff`.
"""

from typing import ClassVar

from nodevet.checking.one_value import itself, node_value, ok_if
from nodevet.evidence.cpu import Cpu
from nodevet.model import Area, CheckParams, Finding

FIRMWARE = "change it in the firmware's set-up: Hyper-Threading, SMT mode"
ADVICE = {
    "notsupported": "the CPU has no SMT, or the firmware turned it off: see its set-up",
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
    unasked="each site chooses on or off: write smt: true",
)
