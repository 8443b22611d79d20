"""The BIOS has an expected version and the expected settings.

**Why it matters.** The BIOS contains microcode, and sets up PCIe and memory. Two nodes of one model
with different BIOS versions differ in speed and in faults. An update often resets settings: NUMA
nodes per socket, IOMMU, power profile, SR-IOV.

**Read from** `bios_vendor`, `bios_version` and `bios_date` in `/sys/class/dmi/id`. The attributes
come from the BMC, by Redfish: `Attributes` of the system's `Bios`
([the BMC in an inventory](https://github.com/nodevet/nodevet/blob/main/docs/bmc.md)).

**Verdicts.** nodevet judges only the fields that the baseline gives. It compares versions as text,
because every vendor numbers them differently. To refuse old versions, use `minimum_date`, which
compares release dates. A virtual machine has its hypervisor's firmware and is not applicable. A
node without DMI (Arm boards) is unknown. Write names and values of attributes exactly as the BMC
reports them; vendors name them differently. An attribute is unknown if nodevet could not read the
BMC, if the BMC has no such attribute, or if nodevet reads the BMC by IPMI.

**To fix it** update the BIOS with the vendor's tool or the BMC on a drained node. Then check the
settings that the update may have reset: run this baseline's other checks. Change an attribute with
the vendor's tool, in the BIOS setup, or by a PATCH of the resource that `@Redfish.Settings` of
`Bios` names. The change takes effect at the next boot.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import each_named, reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.core import Section, unread
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


SETTING = (
    "change it with the vendor's tool, in the BIOS setup or by Redfish (`@Redfish.Settings` of "
    "Bios), then drain the node and reboot it"
)
Name = Annotated[str, Meta(pattern=r"^[!-~]([ -~]{0,98}[!-~])?$", title="the name of an attribute")]


class Params(CheckParams):
    """`bios: {one_of: ["2.1.5", "2.2.7"]}`, `bios: {minimum_date: 2024-06-14}` or
    `bios: {attributes: {SriovGlobalEnable: Enabled, NumaNodesPerSocket: "4"}}`"""

    bare: ClassVar[str] = "one_of"

    one_of: tuple[str, ...] = ()
    """The allowed versions, as `dmidecode -s bios-version` prints them."""
    vendor: str | None = None
    minimum_date: date | None = None
    attributes: Mapping[Name, str | int | bool] = {}
    """Settings by the names and values that the BMC gives them."""

    def __post_init__(self) -> None:
        if not self.of_dmi and not self.attributes:
            raise ValueError("give one_of, vendor, minimum_date or attributes")

    @property
    def of_dmi(self) -> bool:
        """Whether the baseline expects a value that DMI reports."""
        return bool(self.one_of) or self.vendor is not None or self.minimum_date is not None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    if params.of_dmi:
        yield from judge_dmi(evidence, params)
    if params.attributes:
        yield from judge_attributes(evidence[BmcInfo], params.attributes)


def judge_attributes(
    section: Section[BmcInfo], expected: Mapping[str, str | int | bool]
) -> Iterator[Finding]:
    for entry in each_named(section, expected, label="bmc", listed="attributes", kind="BIOS"):
        if isinstance(entry, Finding):
            yield entry
            continue
        subject, attribute = entry
        value, actual = str(expected[attribute.name]), attribute.value
        if actual is None:
            yield unread(subject, attribute, "value")
        else:
            yield ok_if(actual == value, subject, expected=value, actual=actual, advice=SETTING)


def judge_dmi(evidence: Evidence, params: Params) -> Iterator[Finding]:
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
    reads=(
        *reads_of("host", "bios_version", "bios_vendor", "bios_date", "virtualization"),
        *reads_of("bmc.attributes[]", "name", "value"),
    ),
    asks=lambda params: {"bmc": tuple(params.attributes)} if params.attributes else {},
    judge=judge,
    unasked="only a site knows which versions it approved: write bios: {one_of: [...]}",
    severity=Severity.WARNING,
    learn=learn,
)
