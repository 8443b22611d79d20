"""The expected kernel modules are loaded, and the NVIDIA module matches its library.

**Why it matters.** Without nvidia_uvm, CUDA does not start; without nvidia_peermem RDMA falls back
to copies through the host; nouveau keeps the NVIDIA driver from binding to the GPUs. After an
upgrade without a reboot the loaded module and the library differ in version, and every new process
fails.

**Read from** /proc/modules, /sys/module and /lib/modules/<release>/modules.builtin (built-in
modules), /sys/module/nvidia/version, and NVML, nvmlSystemGetDriverVersion.

**Verdicts.** A built-in module counts as loaded, for `absent` too. nvidia_uvm and nvidia_modeset
are not applicable while they are not loaded, if they are installed and the driver's setuid
nvidia-modprobe(1) loads them when a program first needs them. A loaded nvidia module whose library
is not installed fails. Names are compared in the kernel's spelling: nvidia-uvm is nvidia_uvm. If a
PCI function is bound to an expected module that the lists do not have, the node is unknown.

**To fix it** a file in /etc/modules-load.d loads a module at every boot; `modprobe` loads it now.
`blacklist nouveau` in /etc/modprobe.d and a new initramfs keep nouveau out. If the versions differ,
reboot, or unload and load the nvidia modules.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr, replace

from nodevet.checking.named import reads_of
from nodevet.evidence.across import DRIVER_FAULT, INSTALL_LIBRARY, half_a_driver
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import Pci
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    compare,
    fail,
    not_applicable,
    ok,
    unknown,
)

MISMATCH = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
NO_DRIVER = "the nvidia driver is not loaded (/sys/module/nvidia does not exist)"


def kernel_name(name: str) -> str:
    """The name as /proc/modules spells it."""
    return name.replace("-", "_")


Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$", title="a module's name, such as nvidia")]


class Params(CheckParams):
    """`kernel_modules: {loaded: [nvidia, nvidia_uvm], absent: [nouveau]}`"""

    loaded: tuple[Name, ...] = ()
    absent: tuple[Name, ...] = ()
    version_matches: bool = True
    """Whether the loaded nvidia module must have NVML's version."""

    def __post_init__(self) -> None:
        for field in ("loaded", "absent"):
            force_setattr(self, field, tuple(map(kernel_name, getattr(self, field))))
        both = sorted(set(self.loaded) & set(self.absent))
        if both:
            raise ValueError(f"{', '.join(both)}: listed in both loaded and absent")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Modules]
    for names, expected in ((params.loaded, "loaded"), (params.absent, "not loaded")):
        for name in names:
            if section.data is None:
                yield unknown(Subject(kind="module", id=name), why=f"modules: {section.why}")
            else:
                yield with_driver_cause(evidence, judge_module(section.data, name, expected))
    yield from bound_but_unlisted(evidence, (*params.loaded, *params.absent))
    if params.version_matches:
        yield judge_version(evidence)
    elif not params.loaded and not params.absent:
        yield unknown(why="the baseline names nothing to check")


def with_driver_cause(evidence: Evidence, finding: Finding) -> Finding:
    """The finding with NVML's error if nvidia is not loaded, or with that fault as the cause if the
    module needs nvidia."""
    if finding.verdict is not Verdict.FAIL or finding.expected != "loaded":
        return finding
    nvml, modules = evidence[Gpus], evidence[Modules].data
    if finding.subject.id == "nvidia" and nvml.data is None:
        return replace(finding, why=f"NVML: {nvml.why}")
    needs_it = finding.subject.id.startswith("nvidia_")
    if needs_it and modules is not None and "nvidia" not in (modules.loaded or ()):
        return replace(finding, cause=DRIVER_FAULT)
    return finding


def judge_module(modules: Modules, name: str, expected: str) -> Finding:
    subject = Subject(kind="module", id=name)
    for field, actual in (("loaded", "loaded"), ("builtin", "built in")):
        names = getattr(modules, field)
        if names is None:
            return unknown(subject, why=f"{field}: {modules.why(field)}")
        if name in names:
            return (ok if expected == "loaded" else fail)(subject, expected=expected, actual=actual)
    if expected == "loaded" and name in (modules.on_demand or ()):
        return not_applicable(subject, why="not loaded yet: nvidia-modprobe loads it at first use")
    return compare(subject, expected=expected, actual="not loaded")


def bound_but_unlisted(evidence: Evidence, names: Sequence[str]) -> Iterator[Finding]:
    """An unknown finding for each of these modules that is in use but not in the lists."""
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None or modules.builtin is None:
        return
    functions = (data.functions if (data := evidence[Pci].data) else None) or ()
    signs = {
        kernel_name(function.driver): f"{function.address} is bound to"
        for function in functions
        if function.driver
    }
    if modules.nvidia_version:
        signs["nvidia"] = f"/sys/module/nvidia has the version {modules.nvidia_version} of"
    for name in names:
        if name in signs and name not in modules.loaded and name not in modules.builtin:
            why = f"{signs[name]} {name}, which is not among the modules that were read"
            yield unknown(why=why)


def judge_version(evidence: Evidence) -> Finding:
    subject = Subject(kind="module", id="nvidia")
    modules, nvml = evidence[Modules], evidence[Gpus]
    if nvml.data is None and MISMATCH in nvml.why:
        return fail(
            subject,
            expected="the library's version",
            actual=modules.data.nvidia_version if modules.data else None,
            why=f"NVML: {nvml.why}",
            advice="reboot, or unload and load the nvidia modules",
        )
    if half_a_driver(evidence):
        return fail(
            subject,
            expected="the library's version",
            actual=modules.data.nvidia_version if modules.data else None,
            why=half_a_driver(evidence),
            advice=INSTALL_LIBRARY,
        )
    if modules.data is None:
        return unknown(subject, why=f"modules: {modules.why}")
    loaded = modules.data.loaded or ()
    if modules.data.errors.get("nvidia_version") == "ENOENT" and "nvidia" not in loaded:
        return unknown(subject, why=NO_DRIVER, cause=DRIVER_FAULT)
    if not modules.data.nvidia_version:
        return unknown(subject, why=f"nvidia_version: {modules.data.why('nvidia_version')}")
    if nvml.data is None:
        return unknown(subject, why=f"NVML: {nvml.why}")
    if not nvml.data.driver_version:
        return unknown(subject, why=f"driver_version: {nvml.data.why('driver_version')}")
    return compare(subject, expected=nvml.data.driver_version, actual=modules.data.nvidia_version)


def learn(evidence: Evidence) -> Value:
    """The modules of the NVIDIA stack; the kernel's other modules do not concern the GPUs."""
    data = evidence[Modules].data
    if data is None or data.loaded is None:
        return None
    mine = sorted(name for name in data.loaded if name.startswith("nvidia") or name == "gdrdrv")
    absent = [] if "nouveau" in data.loaded else ["nouveau"]
    return {"loaded": mine, "absent": absent} if mine else None


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        "gpu.driver_version",
        *reads_of("modules", "loaded[]", "builtin[]", "nvidia_version", "on_demand[]"),
        "pci.functions[].driver",
    ),
    judge=judge,
    learn=learn,
    actions={INSTALL_LIBRARY: NeededAction.SITE},
)
