"""Set MaxReadReq and relaxed ordering of GPUs and NICs as expected, now and at every boot.

**Now** nodevet runs `setpci -s ADDRESS CAP_EXP+8.w=VALUE:MASK` for each PCI function that fails.
The mask leaves all other bits of the register as they are.

**At every boot** the unit `nodevet-pcie-settings.service` sets these values for every function that
the check judges. It identifies a card by its address, vendor and device. A card in another slot
keeps the values of the BIOS, and the check reports it. If one `setpci` fails, the unit still sets
the other functions, and then fails.

**Risk** idle: no process may use the GPUs, because a job's transfers may be in progress.

**Rollback** restores these bits of each register, and removes the unit or restores the earlier one.

**What it cannot do.** It never changes MaxPayload, which must match along the whole path: set it in
the BIOS, or boot with `pci=pcie_bus_safe`. It does not change ASPM, because the kernel sets ASPM
for both ends of a link: boot with `pcie_aspm.policy=performance`. If the command line has
`pci=pcie_bus_perf`, it does not raise MaxReadReq, which then protects functions with a smaller
payload. nodevet cannot see whether a kernel was built that way (CONFIG_PCIE_BUS_PERFORMANCE). It
does not turn relaxed ordering on below root ports where Linux turns it off because of an erratum.
Without `setpci` (package pciutils), or if the kernel is locked down, the step fails. If a function
is reset, it may lose the value until the next boot. Tests run the real `setpci`, but no test
has written to a real card.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.pcie_settings import SIZES, Params, settings_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.pci_settings import PciSetting, each_setting
from nodevet.fixing import pci
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding, Verdict

BOOT = BootUnit("pcie_settings")
REGISTER = "CAP_EXP+8.w"  # Device Control
READ_REQUEST, RELAXED = 0x7000, 0x0010
FIXED = {"max_read_request_b", "relaxed_ordering"}
OTHERS = {
    "max_payload_b": "MaxPayload must match along the whole path: set it in the BIOS",
    "aspm": "the kernel sets ASPM for both ends of a link: boot with pcie_aspm.policy=performance",
}
NO_RELAXED = {
    *(f"8086:{family}{number:02x}" for family in ("6f", "2f") for number in range(1, 15)),
    *(f"1022:1a0{number}" for number in range(3)),
}
"""Root ports of Broadwell, Haswell and Seattle: quirk_relaxedordering_disable of the kernel."""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change of all functions that can be repaired; see `FIX`."""
    functions = readable(evidence, params)
    repaired, refused = dict[str, Finding](), list[str]()
    for finding in failed:
        address = finding.subject.id
        if address not in functions:
            raise FixError(f"{finding.subject.label}: the finding does not come from this evidence")
        if why := obstacle(evidence, functions[address], params):
            refused.append(f"{address}: {why}")
        else:
            repaired[address] = finding
    if not repaired:
        raise FixError("; ".join(refused))
    boot = {
        address: (pci.ids(evidence, address), *bits(setting, params, repair=address in repaired))
        for address, setting in functions.items()
    }
    change = pci.change(BOOT, REGISTER, boot, repaired)
    yield from with_refusals([change], refused)


def readable(evidence: Evidence, params: Params) -> Mapping[str, PciSetting]:
    """The judged functions by address. Raises FixError if the register of one was not read: the
    unit sets them all."""
    functions = {}
    for setting in each_setting(evidence, params.of, params.ignore):
        if isinstance(setting, Finding):
            raise FixError(f"{setting.subject.label or 'the functions'}: {setting.why}")
        for field in sorted(FIXED):
            if getattr(setting, field) is None:
                raise FixError(f"{setting.address}: {field}: {setting.why(field)}")
        if setting.max_read_request_b not in SIZES:
            raise FixError(f"{setting.address}: MaxReadReq has no valid value")
        functions[setting.address] = setting
    return functions


def obstacle(evidence: Evidence, setting: PciSetting, params: Params) -> str:
    """Why nodevet cannot repair this function; empty if it can."""
    wrong = {each.name for each in settings_of(setting, params) if each.verdict is not Verdict.OK}
    if others := sorted(wrong - FIXED):
        return OTHERS[others[0]]
    if "max_read_request_b" in wrong:
        host = evidence[HostInfo].data
        cmdline = host.cmdline if host else None
        if cmdline is None:
            return "nodevet could not read whether the kernel's command line has pcie_bus_perf"
        if "pcie_bus_perf" in cmdline:
            return "with pci=pcie_bus_perf no read request may be larger than the payload"
    if "relaxed_ordering" in wrong and params.relaxed_ordering:
        return relaxed_obstacle(evidence, setting)
    return ""


def relaxed_obstacle(evidence: Evidence, setting: PciSetting) -> str:
    if setting.above is None:
        return f"the ports above it: {setting.why('above')}"
    port = pci.ids(evidence, setting.above[-1]) if setting.above else ""
    return f"Linux turns relaxed ordering off below {port}" if port in NO_RELAXED else ""


def bits(setting: PciSetting, params: Params, *, repair: bool) -> tuple[int, int]:
    """(value, mask) of what the baseline sets in a function's register; unless it is repaired,
    with the values that it has."""
    size, relaxed = setting.max_read_request_b or 0, bool(setting.relaxed_ordering)
    value = mask = 0
    if params.minimum_read_request_b is not None:
        size = max(size, params.minimum_read_request_b) if repair else size
        value, mask = SIZES.index(size) << 12, READ_REQUEST
    if params.relaxed_ordering is not None:
        relaxed = params.relaxed_ordering if repair else relaxed
        value, mask = value | (RELAXED if relaxed else 0), mask | RELAXED
    return value, mask


FIX = Fix(plan=plan, risk=Risk.IDLE, after=("mig_mode", "ecc_mode"))
"""After modes that reset GPUs, and with them their registers."""
