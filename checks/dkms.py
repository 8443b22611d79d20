"""Every DKMS module is built for the running kernel and for the kernel that boots next.

**Why it matters.** An unattended upgrade brings a new kernel, its headers are missing, and the
build of the NVIDIA driver fails without anyone noticing: after the next reboot, weeks later, the
node has no GPUs.

**Read from** /var/lib/dkms, /lib/modules and /boot/vmlinuz-*; /proc/sys/kernel/osrelease.

**Verdicts.** nodevet assumes that the newest installed kernel boots next, as the boot loaders of
distributions do; if another one boots, say `next_kernel: false`. A build whose files are no longer
below /lib/modules does not count. `ignore` names modules that need not be built for every kernel. A
node without DKMS modules is not applicable.

**To fix it** install the headers (`linux-headers-RELEASE`, `kernel-devel-RELEASE`), then `dkms
autoinstall -k RELEASE`; `dkms status` and /var/lib/dkms/MODULE/VERSION/build/make.log say why a
build failed. With secure boot the key must be enrolled: `mokutil --test-key`.
"""

from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.dkms import Dkms, DkmsBuild, DkmsModule
from nodevet.evidence.document import Evidence
from nodevet.evidence.versions import dpkg_order
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Verdict,
    not_applicable,
    unknown,
)

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+._-]{1,100}$")]


class Params(CheckParams):
    """`dkms: {}` or `dkms: {next_kernel: false, ignore: [zfs]}`"""

    next_kernel: bool = True
    """Whether the newest kernel is judged besides the running kernel."""
    ignore: tuple[Name, ...] = ()
    """Modules that are not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Dkms]
    dkms = section.data
    if section.status == "absent":
        yield not_applicable(why=section.why)
    elif dkms is None:
        yield unknown(why=f"DKMS: {section.why}")
    elif dkms.modules is None or dkms.running is None:
        yield unread(Subject(), dkms, "modules" if dkms.modules is None else "running")
    else:
        modules = [module for module in dkms.modules if module.name not in params.ignore]
        newest = newest_of(dkms) if params.next_kernel else dkms.running
        unlisted = f"kernels: {dkms.why('kernels')}"
        doubt = unlisted if params.next_kernel and dkms.kernels is None else ""
        for module in modules:
            yield from judge_module(module, dkms.running, newest, doubt)
        if not modules:
            yield not_applicable(why="DKMS has no modules, or only ignored ones")


def newest_of(dkms: Dkms) -> str:
    """The newest kernel that could boot; the running one if none is known."""
    newest = max(dkms.kernels or (), key=cmp_to_key(dpkg_order), default="")
    return newest or dkms.running or ""


def judge_module(module: DkmsModule, running: str, newest: str, doubt: str) -> Iterator[Finding]:
    """`doubt`: why a newer kernel may boot next; empty if none can."""
    subject = Subject(kind="module", id=module.name)
    if module.builds is None:
        yield unread(subject, module, "builds")
        return
    if any(build.kernel is None for build in module.builds):
        yield unknown(subject, why="the kernel of a build was not read")
        return
    aspects = [in_kernel(kernel, module.builds) for kernel in dict.fromkeys((running, newest))]
    if newest != running and aspects[-1].verdict is Verdict.FAIL:
        why = f"{newest} is the newest installed kernel, so it boots next"
        aspects[-1] = aspects[-1]._replace(why=why)
    yield from aspect_findings(
        subject, [*aspects, *([unknown_aspect("kernels", doubt)] if doubt else [])]
    )


def in_kernel(kernel: str, builds: Sequence[DkmsBuild]) -> Aspect:
    """Whether a complete build for this kernel exists."""
    kernel_builds = [build for build in builds if build.kernel == kernel]
    is_whole = any(build.missing == 0 for build in kernel_builds)
    unread_builds = [build for build in kernel_builds if build.missing is None]
    if unread_builds and not is_whole:
        return unread_aspect(unread_builds[0], "missing")
    actual = "installed" if is_whole else actual_of(kernel_builds)
    return aspect_if(kernel, is_whole, expected="installed", actual=actual, advice=ADVICE)


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
        *reads_of("dkms.modules[].builds[]", "kernel", "missing"),
        "dkms.modules[].name",
        "dkms.running",
    ),
    judge=judge,
    unasked="another kernel than the newest may boot next: say dkms: {} if the newest does",
)
