"""Every module of DKMS is built for the running kernel and for the one that boots next.

**Why it matters.** An unattended upgrade brings a new kernel, its headers are missing, and the
build of the NVIDIA driver fails without anyone noticing: after the next reboot, weeks later, the
node has no GPUs.

**Read from** /var/lib/dkms, /lib/modules and /boot/vmlinuz-*; /proc/sys/kernel/osrelease.

**Verdicts.** The kernel that boots next is taken to be the newest that is installed, as the boot
loader of distributions does; where another one is chosen, say `next_kernel: false`. A build whose
files are no longer below /lib/modules does not count. `ignore` names modules that need not be
there for every kernel. Not applicable without modules of DKMS.

**To fix it** install the headers (`linux-headers-RELEASE`, `kernel-devel-RELEASE`), then `dkms
autoinstall -k RELEASE`; `dkms status` and /var/lib/dkms/MODULE/VERSION/build/make.log say why a
build failed. With secure boot the key must be enrolled: `mokutil --test-key`.
"""

from collections.abc import Iterator
from functools import cmp_to_key
from typing import Annotated

from msgspec import Meta

from nodevet.checking.versions import dpkg_order
from nodevet.evidence.core import unread
from nodevet.evidence.dkms import Dkms, DkmsBuild, DkmsModule
from nodevet.evidence.document import Evidence
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+._-]{1,100}$")]


class Params(CheckParams):
    """`dkms: {}` or `dkms: {next_kernel: false, ignore: [zfs]}`"""

    next_kernel: bool = True
    """Whether the newest kernel is judged besides the running one."""
    ignore: tuple[Name, ...] = ()
    """Modules."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Dkms]
    found = section.data
    if section.status == "absent":
        yield not_applicable(why=section.why)
    elif found is None:
        yield unknown(why=f"DKMS: {section.why}")
    elif found.modules is None or found.running is None:
        yield unread(Subject(), found, "modules" if found.modules is None else "running")
    else:
        judged = [each for each in found.modules if each.name not in params.ignore]
        newest = newest_of(found) if params.next_kernel else found.running
        for module in judged:
            answer = judge_module(module, found.running, newest)
            partly = params.next_kernel and found.kernels is None and answer.verdict is Verdict.OK
            yield unread(answer.subject, found, "kernels") if partly else answer
        if not judged:
            yield not_applicable(why="DKMS has no modules that are not ignored")


def newest_of(found: Dkms) -> str:
    """The newest kernel that could boot; the running one if none is known."""
    newest = max(found.kernels or (), key=cmp_to_key(dpkg_order), default="")
    return newest or found.running or ""


def judge_module(module: DkmsModule, running: str, newest: str) -> Finding:
    """One finding: a kernel that lacks it, else what was not read, else that it is there."""
    subject = Subject(kind="module", id=module.name)
    kernels = list(dict.fromkeys((running, newest)))
    if module.builds is None:
        return unread(subject, module, "builds")
    if any(each.kernel is None for each in module.builds):
        return unknown(subject, why="of a build the kernel was not read")
    unsaid = None
    lacking: dict[str, str] = {}
    for kernel in kernels:
        builds = [each for each in module.builds if each.kernel == kernel]
        if any(each.missing == 0 for each in builds):
            continue
        unsaid = unsaid or next((each for each in builds if each.missing is None), None)
        if not any(each.missing is None for each in builds):
            lacking[kernel] = actual_of(builds)
    if lacking:
        late = newest in lacking and newest != running
        return fail(
            subject,
            expected=dict.fromkeys(lacking, "installed"),
            actual=lacking,
            why=f"{newest} is the newest kernel, which boots next" if late else "",
            advice=ADVICE,
        )
    if unsaid is not None:
        return unread(subject, unsaid, "missing")
    return ok(
        subject,
        expected=dict.fromkeys(kernels, "installed"),
        actual=dict.fromkeys(kernels, "installed"),
    )


def actual_of(builds: list[DkmsBuild]) -> str:
    if not builds:
        return "not built"
    return f"{builds[0].missing} of its files are gone"


ADVICE = "install the kernel's headers, then `dkms autoinstall -k RELEASE`; `dkms status` says more"

CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        "dkms.kernels[]",
        "dkms.modules[].builds[].kernel",
        "dkms.modules[].builds[].missing",
        "dkms.modules[].name",
        "dkms.running",
    ),
    judge=judge,
    unasked="modules may come with the kernel: say dkms: {} where DKMS builds them",
)
