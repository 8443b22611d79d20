"""GDRCopy is ready: gdrdrv is loaded and every user may open /dev/gdrdrv.

**Why it matters.** NVSHMEM, UCX and MPI copy small messages with GDRCopy; without it they silently
take a slower path, or fail to start.

**Read from** /sys/module/gdrdrv and its version, and the permissions of /dev/gdrdrv.

**Verdicts.** Everyone must be able to read and write the device (0666), as its own installer sets
it. `minimum_version` is compared number by number.

**To fix it** install gdrdrv-dkms and load it. Its package has a service that makes the device node;
on a kernel without udev's help, `modprobe gdrdrv` alone does not make it.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpudirect import GpuDirect
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

EVERYONE = 0o666


class Params(CheckParams):
    """`gdrcopy: {}` or `gdrcopy: {minimum_version: "2.4"}`"""

    minimum_version: Annotated[str, Meta(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")] | None = None


@of_section(GpuDirect, "GPUDirect")
def judge(gpudirect: GpuDirect, evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield judge_module(gpudirect, params)
    yield judge_device(gpudirect)


def judge_module(gpudirect: GpuDirect, params: Params) -> Finding:
    subject = Subject(kind="module", id="gdrdrv")
    minimum = params.minimum_version
    expected = f"at least {minimum}" if minimum else "loaded"
    if gpudirect.gdrdrv is None:
        return unread(subject, gpudirect, "gdrdrv")
    if not gpudirect.gdrdrv:
        return fail(subject, expected=expected, actual="not loaded", advice=LOAD)
    if minimum is None:
        return ok(subject, expected=expected, actual="loaded")
    if gpudirect.gdrdrv_version is None:
        return unread(subject, gpudirect, "gdrdrv_version")
    actual = numbers(gpudirect.gdrdrv_version)
    if not actual:
        text = gpudirect.gdrdrv_version or "none"
        return unknown(subject, why=f"gdrdrv_version: {text} is not a version")
    right = actual >= numbers(minimum)
    return ok_if(right, subject, expected=expected, actual=gpudirect.gdrdrv_version, advice=UPGRADE)


def numbers(text: str) -> tuple[int, ...]:
    """
    >>> numbers("2.4.1"), numbers("v2")
    ((2, 4, 1), ())
    """
    match = re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,4}", text)
    return tuple(int(part) for part in text.split(".")) if match else ()


def judge_device(gpudirect: GpuDirect) -> Finding:
    subject = Subject(kind="device", id="/dev/gdrdrv")
    mode = gpudirect.gdrdrv_device
    if mode is None:
        return unread(subject, gpudirect, "gdrdrv_device")
    if not mode:
        return fail(subject, expected="0666", actual="not there", advice=LOAD)
    if re.fullmatch("[0-7]{3,6}", mode) is None:
        return unknown(subject, why=f"gdrdrv_device: {mode[:60]} is not a valid mode")
    right = int(mode, 8) & EVERYONE == EVERYONE
    return ok_if(right, subject, expected="0666", actual=mode, advice=PERMIT)


LOAD = "install gdrdrv-dkms; `systemctl restart gdrcopy` or `modprobe gdrdrv` loads it"
PERMIT = "chmod 0666 /dev/gdrdrv, or correct the udev rule that sets its mode"
UPGRADE = "install a newer gdrdrv-dkms, and load the module again"


def learn(evidence: Evidence) -> Any:
    gpudirect = evidence[GpuDirect].data
    return {} if gpudirect is not None and gpudirect.gdrdrv else None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=reads_of("gpudirect", "gdrdrv", "gdrdrv_device", "gdrdrv_version"),
    judge=judge,
    unasked="for nodes on which jobs use GDRCopy",
    severity=Severity.WARNING,
    learn=learn,
)
