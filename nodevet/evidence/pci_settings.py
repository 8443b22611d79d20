"""Section pci_settings."""

from collections.abc import Collection, Iterator
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Text
from nodevet.evidence.core import NOT_ASKED, Record, SectionRecord, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.pci import KEPT_FOR_GUESTS
from nodevet.model import NODE, Finding, Subject, unknown

NO_ACS = "no ACS capability"
SOURCE_VALIDATION, REQUEST_REDIRECT, COMPLETION_REDIRECT, UPSTREAM_FORWARDING = 1, 4, 8, 16
"""Bits of ACSCap and ACSCtl."""
READ_AGAIN = "the evidence was saved before the baseline asked for this: visit the host again"
METAL = ("none", "container")
ONE_GIGABIT = ("e1000e", "igb", "igc", "r8169", "tg3")
"""Drivers of management NICs, which no job uses."""


class PciSetting(Record, frozen=True, kw_only=True):
    """The registers of a function that the baseline asked for. Virtual functions do not count."""

    address: Text
    kind: Text | None = None  # gpu, nic, nvme, port
    driver: Text | None = None  # empty: none is bound
    above: Annotated[tuple[Text, ...], bounds.BUSES] | None = None  # ports, nearest first
    local_cpulist: NumberList | None = None
    # config: PCI Express capability, DevCap, DevCtl and LnkCtl; ACS
    max_payload_b: int | None = None
    max_payload_most_b: int | None = None  # that the function can
    max_read_request_b: int | None = None
    relaxed_ordering: bool | None = None
    aspm: Text | None = None  # disabled, L0s, L1, L0s L1
    acs_supported: int | None = None  # ACSCap
    acs_enabled: int | None = None  # ACSCtl
    # iommu
    iommu_group: int | None = None  # -1: none
    iommu_type: Text | None = None  # identity, DMA, DMA-FQ; empty without a group
    # interrupts: MSI and MSI-X
    irqs: int | None = None
    irq_cpus: NumberList | None = None  # that any of them is sent to


class PciSettings(SectionRecord, frozen=True, kw_only=True):
    """GPUs, NICs, NVMe and every port above one of them. `absent`: not asked for."""

    unique = ("functions[].address",)
    plural = "PCI functions"

    count: int | None = None  # of the functions
    functions: Annotated[tuple[PciSetting, ...], bounds.FUNCTIONS] | None = None


READS = ("pci_settings.count", "pci_settings.functions[].address", "pci_settings.functions[].kind")
"""The fields that list the functions: part of `reads` of a check with `each_setting`."""


def subject_of(setting: PciSetting) -> Subject:
    return Subject(kind="pci", id=setting.address, bus_id=setting.address)


def each_setting(
    evidence: Evidence, kinds: Collection[str], ignore: Collection[str] = ()
) -> Iterator[PciSetting | Finding]:
    """Every function of these kinds that is neither for guests nor ignored by driver or address; or
    an unknown finding for what could not be read. Never empty."""
    section = evidence[PciSettings]
    if section.data is None:
        is_not_asked = section.why == NOT_ASKED
        why = section.why if is_not_asked else f"pci_settings: {section.why}"
        yield unknown(why=why, advice=READ_AGAIN if is_not_asked else "")
        return
    if section.data.functions is None or section.data.count is None:
        field = "functions" if section.data.functions is None else "count"
        yield unread(NODE, section.data, field)
        return
    has_any = False
    for setting in section.data.functions:
        if setting.address in ignore or setting.driver in (*KEPT_FOR_GUESTS, *ignore):
            continue
        if setting.kind is None:
            has_any = True
            yield unread(subject_of(setting), setting, "kind")
        elif setting.kind in kinds:
            has_any = True
            yield setting
    read_count = len(section.data.functions)
    if read_count != section.data.count:
        yield unknown(why=f"{read_count} of {section.data.count} PCI functions were read")
    elif not has_any:
        yield unknown(why=f"there is no {' or '.join(kinds)} to judge")


def of_metal(evidence: Evidence) -> str | None:
    """ "" if the node owns its hardware, else its virtualization; None if unread."""
    host = evidence[HostInfo].data
    if host is None or host.virtualization is None:
        return None
    return "" if host.virtualization in METAL else host.virtualization
