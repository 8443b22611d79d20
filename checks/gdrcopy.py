"""GDRCopy is ready: gdrdrv is loaded and every user may open /dev/gdrdrv.

**Why it matters.** NVSHMEM, UCX and MPI copy small messages with it; without it they silently take
a slower path, or fail to start.

**Read from** /sys/module/gdrdrv with its version, and the permissions of /dev/gdrdrv.

**Verdicts.** The device must be readable and writable for everyone (0666), as its own installer
leaves it. `minimum_version` is compared number by number.

**To fix it** install gdrdrv-dkms and load it: its package has a service that makes the device node;
`modprobe gdrdrv` alone does not on a kernel without udev's help.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpudirect import GpuDirect
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

EVERYONE = 0o666


class Params(CheckParams):
    """`gdrcopy: {}` or `gdrcopy: {minimum_version: "2.4"}`"""

    minimum_version: Annotated[str, Meta(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")] | None = None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[GpuDirect]
    found = section.data
    if found is None:
        yield unknown(why=f"GPUDirect: {section.why}")
        return
    yield judge_module(found, params)
    yield judge_device(found)


def judge_module(found: GpuDirect, params: Params) -> Finding:
    subject = Subject(kind="module", id="gdrdrv")
    wanted = params.minimum_version
    expected = f"at least {wanted}" if wanted else "loaded"
    if found.gdrdrv is None:
        return unread(subject, found, "gdrdrv")
    if not found.gdrdrv:
        return fail(subject, expected=expected, actual="not loaded", advice=LOAD)
    if wanted is None:
        return ok(subject, expected=expected, actual="loaded")
    if found.gdrdrv_version is None:
        return unread(subject, found, "gdrdrv_version")
    actual = numbers(found.gdrdrv_version)
    if not actual:
        told = found.gdrdrv_version or "none"
        return unknown(subject, why=f"gdrdrv_version: {told} is not a version")
    right = actual >= numbers(wanted)
    return ok_if(right, subject, expected=expected, actual=found.gdrdrv_version, advice=UPGRADE)


def numbers(text: str) -> tuple[int, ...]:
    """
    >>> numbers("2.4.1"), numbers("v2")
    ((2, 4, 1), ())
    """
    match = re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,4}", text)
    return tuple(int(part) for part in text.split(".")) if match else ()


def judge_device(found: GpuDirect) -> Finding:
    subject = Subject(kind="device", id="/dev/gdrdrv")
    mode = found.gdrdrv_device
    if mode is None:
        return unread(subject, found, "gdrdrv_device")
    if not mode:
        return fail(subject, expected="0666", actual="not there", advice=LOAD)
    if re.fullmatch("[0-7]{3,6}", mode) is None:
        return unknown(subject, why=f"gdrdrv_device: {mode[:60]} are no permissions")
    right = int(mode, 8) & EVERYONE == EVERYONE
    return ok_if(right, subject, expected="0666", actual=mode, advice=PERMIT)


LOAD = "install gdrdrv-dkms; `systemctl restart gdrcopy` or `modprobe gdrdrv` loads it"
PERMIT = "chmod 0666 /dev/gdrdrv, or correct the udev rule that sets it"
UPGRADE = "install a newer gdrdrv-dkms, and load the module again"


def learn(evidence: Evidence) -> Any:
    found = evidence[GpuDirect].data
    return {} if found is not None and found.gdrdrv else None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=("gpudirect.gdrdrv", "gpudirect.gdrdrv_device", "gpudirect.gdrdrv_version"),
    judge=judge,
    unasked="for nodes on which jobs use GDRCopy",
    severity=Severity.WARNING,
    learn=learn,
)
