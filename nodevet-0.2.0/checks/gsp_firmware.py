"""Every GPU runs GSP firmware of the driver's version, and GSP is on or off as expected.

**Why it matters.** From Turing on, most of the driver runs on the GPU's own processor, the GSP. A
GPU whose GSP is off, or runs firmware of another release, is slower to start and times out (Xid
119, 120) while its neighbours do not.

**Read from** NVML: nvmlDeviceGetGspFirmwareMode, nvmlDeviceGetGspFirmwareVersion and
nvmlSystemGetDriverVersion.

**Verdicts.** The firmware comes with the driver: a version that is not the driver's fails. With
`one_of`, a version that is not listed fails instead. `enabled` is judged if the baseline gives it.
Without it, a GPU that has GSP off while others of the node have it on fails; if all have it off,
there is nothing to judge. A GPU or driver without GSP firmware is not applicable, unless the
baseline expects it on.

**To fix it** install the firmware files of the driver's own version
(`/lib/firmware/nvidia/VERSION`). `modinfo -F firmware nvidia` prints their names; `dpkg -S FILE` or
`dnf provides FILE` prints their package. Run `apt-get install --reinstall PACKAGE` or
`dnf reinstall PACKAGE`, then `update-initramfs -u` or `dracut -f`, and reboot. The module parameter
`NVreg_EnableGpuFirmware` turns GSP on or off; open kernel modules always have it on.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, board, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    one_or_more,
    unknown,
)

NO_GSP = "this GPU or driver has no GSP firmware"
MODE = (
    "look for NVreg_EnableGpuFirmware in /etc/modprobe.d and on the kernel's command line; the "
    "setting takes effect when the nvidia module is loaded again"
)
FIRMWARE = (
    "install the firmware package of the driver's own version, rebuild the initramfs and reboot: "
    "the old firmware may be left over from an upgrade"
)


class Params(CheckParams):
    """`gsp_firmware: {}` or `gsp_firmware: {enabled: true, one_of: 580.105.08}`"""

    enabled: bool | None = None
    """Whether GSP firmware is expected; without it the GPUs must be alike."""
    one_of: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """The versions that are allowed; without it only the driver's own."""

    def __post_init__(self) -> None:
        one_or_more(self, "one_of")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    entries = tuple(each_gpu(evidence))
    on_elsewhere = any(isinstance(gpu, Gpu) and gpu.gsp_firmware_enabled for gpu in entries)
    expected = True if params.enabled is None and on_elsewhere else params.enabled
    versions = params.one_of or driver_version(evidence)
    for gpu in entries:
        yield from (
            (gpu,) if isinstance(gpu, Finding) else judge_gpu(gpu, expected, params, versions)
        )


def driver_version(evidence: Evidence) -> tuple[str, ...] | str:
    """The driver's own version, or why it is not known."""
    data = evidence[Gpus].data
    if data is None or data.driver_version is None:
        return f"driver_version: {data.why('driver_version') if data else evidence[Gpus].why}"
    return (data.driver_version,)


def judge_gpu(
    gpu: Gpu, enabled: bool | None, params: Params, versions: tuple[str, ...] | str
) -> Iterator[Finding]:
    subject, runs = subject_of(gpu), gpu.gsp_firmware_enabled
    if unsupported(gpu, "gsp_firmware_enabled"):
        if not params.enabled:
            yield not_applicable(subject, why=NO_GSP)
            return
        yield fail(
            subject, expected=True, actual="not supported", why=NO_GSP, advice=MODE,
            details=board(gpu),
        )  # fmt: skip
    elif runs is None:
        yield unread(subject, gpu, "gsp_firmware_enabled")
    elif not runs and enabled is None:
        yield not_applicable(subject, why="no GPU here runs GSP firmware")
    else:
        facts = [ok(subject, expected=runs, actual=runs)]
        if enabled is not None and runs is not enabled:
            details = board(gpu)
            facts = [fail(subject, expected=enabled, actual=runs, advice=MODE, details=details)]
        if runs:
            facts.append(judge_version(gpu, params, versions))
        yield from each_fact(facts)


def judge_version(gpu: Gpu, params: Params, versions: tuple[str, ...] | str) -> Finding:
    subject = subject_of(gpu)
    if gpu.gsp_firmware_version is None:
        return unread(subject, gpu, "gsp_firmware_version")
    if isinstance(versions, str):
        return unknown(subject, why=versions)
    expected = versions[0] if len(versions) == 1 else list(versions)
    if gpu.gsp_firmware_version in versions:
        return ok(subject, expected=expected, actual=gpu.gsp_firmware_version)
    why = "" if params.one_of else "the driver has another version"
    return fail(
        subject, expected=expected, actual=gpu.gsp_firmware_version, why=why, advice=FIRMWARE,
        details=board(gpu),
    )  # fmt: skip


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        *IN_HAND,
        "gpu.driver_version",
        *reads_of("gpu.gpus[]", "gsp_firmware_enabled", "gsp_firmware_version"),
    ),
    judge=judge,
    severity=Severity.WARNING,
)
