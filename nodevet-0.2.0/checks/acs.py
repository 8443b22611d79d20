"""PCIe ports above GPUs and NICs redirect peer-to-peer traffic only if the baseline wants it.

**Why it matters.** With ACS redirection, a switch sends the traffic between two GPUs, or between a
NIC and a GPU, up to the root complex and back down: GPUDirect drops to a fraction of its bandwidth,
or hangs. A host of virtual machines needs redirection: without it, one guest's device can reach
another guest's.

**Read from** the ACS capability in the configuration space of every port above a GPU or a NIC, as
`lspci -vvv` shows it: ACSCtl, ReqRedir and CmpltRedir. Linux turns both redirections on at boot if
the IOMMU is in use, even with iommu=pt.

**Verdicts.** `acs: false` fails for a port that redirects requests or completions; SrcValid alone
redirects nothing. `acs: true` fails for a port that does not redirect both. A port without ACS
cannot redirect. The ports of a virtual machine are not real, so they are not applicable. A GPU that
is reserved for guests is not judged. Without root the result is unknown: only root may read beyond
the first 64 bytes of the configuration space.

**To fix it** turn ACS off in the BIOS, or run `setpci -s PORT ECAP_ACS+6.w=0000` at every boot. On
bare metal without VMs, turning off the IOMMU also works. A host of virtual machines needs its IOMMU
on (intel_iommu=on, amd_iommu=on).
"""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.checking.named import reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci_settings import (
    COMPLETION_REDIRECT,
    NO_ACS,
    READS,
    REQUEST_REDIRECT,
    PciSetting,
    PciSettings,
    each_setting,
    of_metal,
    subject_of,
)
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    compare,
    fail,
    not_applicable,
    unknown,
)

REDIRECTS = REQUEST_REDIRECT | COMPLETION_REDIRECT
TURN_OFF = (
    "turn ACS off in the BIOS, or run `setpci -s PORT ECAP_ACS+6.w=0000` at every boot; not on a "
    "host that passes devices through to virtual machines"
)
TURN_ON = "turn ACS and the IOMMU on in the BIOS and on the kernel's command line"


class Params(CheckParams):
    """`acs: false`"""

    bare: ClassVar[str] = "redirect"

    redirect: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = of_metal(evidence)
    if virtual is None:
        yield unknown(why="host: cannot tell whether this is a virtual machine")
    elif virtual:
        yield not_applicable(why="the ports of a virtual machine are not real")
    else:
        yield from judge_ports(evidence, params)


def judge_ports(evidence: Evidence, params: Params) -> Iterator[Finding]:
    data = evidence[PciSettings].data
    functions = {
        function.address: function for function in (data.functions if data else None) or ()
    }
    judged = set()
    for device in each_setting(evidence, ("gpu", "nic")):
        if isinstance(device, Finding):
            yield device
        elif device.above is None:
            yield unread(subject_of(device), device, "above")
        elif not device.above:
            yield not_applicable(subject_of(device), why="no port is above it")
        else:
            for address in device.above:
                if address not in judged:
                    judged.add(address)
                    yield judge_port(address, functions.get(address), params.redirect)


def judge_port(address: str, port: PciSetting | None, expected: bool) -> Finding:
    subject = Subject(kind="pci", id=address, bus_id=address)
    if port is None:
        return unknown(subject, why="the port was not read")
    if port.acs_enabled is None:
        if port.errors.get("acs_enabled") != NO_ACS:
            return unread(subject, port, "acs_enabled")
        if expected:
            return fail(subject, expected=True, actual="not supported", advice=TURN_ON)
        return not_applicable(subject, why="a port without ACS redirects nothing")
    bits = port.acs_enabled & REDIRECTS
    actual = bits == REDIRECTS if expected else bits != 0
    advice = "" if actual is expected else TURN_ON if expected else TURN_OFF
    return compare(subject, expected=expected, actual=actual, advice=advice)


def learn(evidence: Evidence) -> bool | None:
    if of_metal(evidence) != "":
        return None
    values = {finding.actual for finding in judge_ports(evidence, Params(redirect=False))}
    answers = values & {True, False}
    return answers.pop() if len(answers) == 1 else None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        *READS,
        *reads_of("pci_settings.functions[]", "driver", "above[]", "acs_enabled"),
        "host.virtualization",
    ),
    judge=judge,
    unasked="off on bare metal, on for hosts of virtual machines: say acs: false or acs: true",
    asks=lambda params: {"pci_settings": ("config",)},
    learn=learn,
)
