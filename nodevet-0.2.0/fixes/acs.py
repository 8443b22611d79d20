"""Turn off ACS redirection in the ports above GPUs and NICs, now and at every boot.

**Now** nodevet runs `setpci -s PORT ECAP_ACS+6.w=0000:000c` for each port that fails. This clears
ReqRedir and CmpltRedir. All other bits stay; SrcValid and UpstreamFwd redirect nothing by
themselves.

**At every boot** the unit `nodevet-acs.service` does the same for every port with ACS that the
check judges. It identifies a port by its address, vendor and device. If cards were moved, it
therefore does not change a wrong port.

**Risk** idle: no process may use the GPUs, because peer-to-peer transfers may be in progress.

**Rollback** restores both bits of each port, and removes the unit or restores the earlier one.

**What it cannot do.** Without redirection, a device of one virtual machine can reach a device of
another one. nodevet therefore refuses a node

- with virtual functions, or with a GPU, NIC or NVMe drive that is bound to a driver for guests;
- with a loaded module for passthrough: VFIO, pciback, pci-stub, NVIDIA vGPU;
- with a running virtual machine (kvm_intel or kvm_amd is in use);
- whose IOMMU translates for a GPU, NIC or NVMe drive: boot with `iommu=pt` first;
- whose kernel command line sets ACS (`config_acs`, `pcie_acs_override`).

It also refuses a node if it cannot find out one of these, for example because KVM is built into the
kernel. If VFIO is built into the kernel, nodevet does not see other kinds of devices that are bound
to it. It does not turn redirection on: that needs the BIOS and the IOMMU. Without `setpci` (package
pciutils), or if the kernel is locked down, the step fails. A reset of the bus may turn redirection
on again until the next boot. Tests run the real `setpci`, but no test has written to a
real port.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.acs import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.files import Files
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import KEPT_FOR_GUESTS, Pci
from nodevet.evidence.pci_settings import (
    COMPLETION_REDIRECT,
    NO_ACS,
    REQUEST_REDIRECT,
    PciSettings,
    each_setting,
)
from nodevet.fixing import pci
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

BOOT = BootUnit("acs")
REGISTER = "ECAP_ACS+6.w"  # ACS Control
REDIRECTS = REQUEST_REDIRECT | COMPLETION_REDIRECT
KVM = ("kvm", "kvm_intel", "kvm_amd")
PASSTHROUGH = ("vfio", "pciback", "pci_stub", "nvidia_vgpu")
"""Parts of the names of modules: vfio_pci, mlx5_vfio_pci, nvgrace_gpu_vfio_pci, xen_pciback."""
NOT_USED = "0"
ACS_AT_BOOT = re.compile(r"config_acs|pcie_acs_override")
DMA = ("gpu", "nic", "nvme")


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change of all ports that fail; see `FIX`."""
    if params.redirect:
        raise FixError("redirection needs the BIOS and the IOMMU: turn it on there")
    host = evidence[HostInfo].data
    if host is None or host.cmdline is None or ACS_AT_BOOT.search(host.cmdline):
        raise FixError("the kernel's command line sets ACS, or was not read")
    if why := isolation(evidence):
        raise FixError(f"ACS may isolate virtual machines here: {why}")
    ports = judged_ports(evidence)
    wrong = {finding.subject.id: finding for finding in failed}
    if unknown := [address[:60] for address in wrong if address not in ports]:
        raise FixError(f"{', '.join(unknown)}: the finding does not come from this evidence")
    off = {address: (pci.ids(evidence, address), 0, REDIRECTS) for address in ports}
    yield pci.change(BOOT, REGISTER, off, wrong)


def judged_ports(evidence: Evidence) -> set[str]:
    """The addresses of the ports with ACS above GPUs and NICs. Raises FixError if one was not read:
    the unit sets them all."""
    data = evidence[PciSettings].data
    functions = {each.address: each for each in (data.functions if data else None) or ()}
    ports = set()
    for device in each_setting(evidence, ("gpu", "nic")):
        if isinstance(device, Finding):
            raise FixError(f"{device.subject.label or 'the ports'}: {device.why}")
        if device.above is None:
            raise FixError(f"{device.address}: the ports above it: {device.why('above')}")
        for address in device.above:
            port = functions.get(address)
            if port is None:
                raise FixError(f"{address[:60]}: it was not read")
            if port.acs_enabled is not None:
                ports.add(address)
            elif port.errors.get("acs_enabled") != NO_ACS:
                raise FixError(f"{address}: {port.why('acs_enabled')}")
    return ports


def isolation(evidence: Evidence) -> str:
    """Why ACS may isolate the devices of virtual machines, or why this cannot be told; or empty."""
    return functions_of_guests(evidence) or running_guests(evidence) or translation(evidence)


def functions_of_guests(evidence: Evidence) -> str:
    data = evidence[Pci].data
    if data is None or data.functions is None:
        return "the PCI functions were not read"
    for function in data.functions:
        if function.driver in KEPT_FOR_GUESTS:
            return f"{function.address} is bound to {function.driver}"
        if function.driver is None and not function.is_unbound:
            return f"{function.address}: driver: {function.why('driver')}"
        if function.physfn is None:
            return f"{function.address}: physfn: {function.why('physfn')}"
        if function.physfn:
            return f"{function.address} is a virtual function of {function.physfn}"
    return ""


def running_guests(evidence: Evidence) -> str:
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None or modules.builtin is None:
        return "the kernel's modules were not read"
    for name in modules.loaded:
        if any(part in name for part in PASSTHROUGH):
            return f"the module {name} is loaded"
    if builtin := sorted({*KVM}.intersection(modules.builtin)):
        return f"{builtin[0]} is built into the kernel, so nodevet cannot tell whether it is in use"
    files = (data := evidence[Files].data) and data.files
    idle = {
        file.path
        for file in files or ()
        if any(answer.text == NOT_USED and answer.found for answer in file.matches or ())
    }
    for name in KVM[1:]:
        if name in modules.loaded and users_of(name) not in idle:
            return f"{name} is in use: a virtual machine runs, or nodevet cannot tell"
    return ""


def translation(evidence: Evidence) -> str:
    for device in each_setting(evidence, DMA):
        if isinstance(device, Finding):
            return f"{device.subject.label}: {device.why}"
        if device.iommu_group is None:
            return f"{device.address}: iommu_group: {device.why('iommu_group')}"
        if device.iommu_group >= 0 and device.iommu_type != "identity":
            kind = device.iommu_type or device.why("iommu_type")
            return f"the IOMMU translates for {device.address}: {kind[:60]}; iommu=pt first"
    return ""


def users_of(module: str) -> str:
    return f"/sys/module/{module}/refcnt"


def asks(params: Params) -> Mapping[str, tuple[object, ...]]:
    """The files that show whether virtual machines use this node."""
    questions = [{"path": users_of(name), "equals": [NOT_USED]} for name in KVM[1:]]
    return {"pci_settings": ("iommu",), "files": tuple(questions)}


FIX = Fix(plan=plan, risk=Risk.IDLE, asks=asks, after=("mig_mode", "ecc_mode"))
