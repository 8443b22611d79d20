"""The node runs one of the BIOS versions that the baseline names.

**Why it matters.** The BIOS contains microcode, and sets up PCIe and memory. Two nodes of one model
with different BIOS versions differ in speed and in faults. An update often resets settings: NUMA
nodes per socket, IOMMU, power profile, SR-IOV.

**Read from** `bios_vendor`, `bios_version` and `bios_date` in `/sys/class/dmi/id`.

**Verdicts.** nodevet judges only the fields that the baseline gives. It compares versions as text,
because every vendor numbers them differently; `minimum_date` compares release dates, which tell
older from newer. A virtual machine has its hypervisor's firmware and is not applicable. A node
without DMI (Arm boards) is unknown.

**To fix it** update the BIOS with the vendor's tool or the BMC on a drained node. Then check the
settings that the update may have reset: run this baseline's other checks.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import ClassVar

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    not_applicable,
    unknown,
)

DAY = re.compile(r"(\d{2})/(\d{2})/(\d{4})")
METAL = ("none", "container")
ADVICE = (
    "update it in the next maintenance window (drain the node, use the vendor's tool or the "
    "BMC); then check again, because an update may reset NUMA, IOMMU, power and SR-IOV settings"
)


class Params(CheckParams):
    """`bios: {one_of: ["2.1.5", "2.2.7"]}` or `bios: {minimum_date: 2024-06-14}`"""

    bare: ClassVar[str] = "one_of"

    one_of: tuple[str, ...] = ()
    """The allowed versions, as `dmidecode -s bios-version` prints them."""
    vendor: str | None = None
    minimum_date: date | None = None

    def __post_init__(self) -> None:
        if not self.one_of and self.vendor is None and self.minimum_date is None:
            raise ValueError("give one_of, vendor or minimum_date")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    host = evidence[HostInfo]
    if host.data is None:
        yield unknown(why=f"host: {host.why}")
    elif host.data.virtualization is None:
        yield unknown(why=f"virtualization: {host.data.why('virtualization')}")
    elif host.data.virtualization not in METAL:
        yield not_applicable(why="a virtual machine has the firmware of its hypervisor")
    else:
        if params.one_of:
            yield compare_text(host.data, "version", params.one_of)
        if params.vendor is not None:
            yield compare_text(host.data, "vendor", (params.vendor,))
        if params.minimum_date is not None:
            yield judge_date(host.data, params.minimum_date)


def compare_text(host: HostInfo, what: str, versions: tuple[str, ...]) -> Finding:
    subject, field = Subject(kind="BIOS", id=what), f"bios_{what}"
    actual = getattr(host, field)
    if actual is None:
        return unread(subject, host, field)
    right = actual in versions
    return ok_if(right, subject, expected=" or ".join(versions), actual=actual, advice=ADVICE)


def judge_date(host: HostInfo, earliest: date) -> Finding:
    subject = Subject(kind="BIOS", id="date")
    if host.bios_date is None:
        return unread(subject, host, "bios_date")
    release = release_date(host.bios_date)
    if release is None:
        return unknown(subject, why=f"bios_date: {host.bios_date[:60]} is not a date")
    right, expected = release >= earliest, f"{earliest} or later"
    return ok_if(right, subject, expected=expected, actual=str(release), advice=ADVICE)


def release_date(text: str) -> date | None:
    """The date in a text of the SMBIOS form MM/DD/YYYY; None for any other text.

    >>> release_date("06/14/2024") datetime.date(2024, 6, 14)
    """
    match = DAY.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    month, day, year = map(int, match.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return None


def learn(evidence: Evidence) -> dict[str, list[str]] | None:
    host = evidence[HostInfo].data
    if host is None or host.virtualization not in METAL or not host.bios_version:
        return None
    return {"one_of": [host.bios_version]}


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=reads_of("host", "bios_version", "bios_vendor", "bios_date", "virtualization"),
    judge=judge,
    unasked="only a site knows which versions it approved: say bios: {one_of: [...]}",
    severity=Severity.WARNING,
    learn=learn,
)
