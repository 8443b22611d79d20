"""Join the answer of a BMC with the visit of its node: nodevet.vet.use.beside."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from nodevet.base import typed
from nodevet.base.printable import brief
from nodevet.bmc.use import Asked, RawSection, Readings
from nodevet.checking.bmc_identity import ids_of_bmc, ids_of_host, match
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.core import Section
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Visit
from nodevet.model import Host

SECTION = "bmc"
NO_BOOT = "None"  # BootProgress.LastState of a system that does not boot


def has(host: Host) -> bool:
    """Whether the inventory names a BMC for this host."""
    return host.bmc is not None


def begin(hosts: Sequence[Host], end: float, asked: Asked) -> Readings:
    """Read the BMCs of these hosts in the background, until `end` by time.monotonic()."""
    return Readings(hosts, end, asked)


def joined(visit: Visit, section: RawSection) -> Visit:
    """The visit with the section in its evidence. Without evidence, its reason ends with the power
    state that the BMC reports."""
    if visit.evidence is None:
        return replace(visit, why=f"{visit.why}; {_power_text(section)}")
    try:
        document = typed.decode(visit.evidence, dict[str, msgspec.Raw])
        sections = typed.decode(bytes(document["sections"]), dict[str, msgspec.Raw])
    except (msgspec.DecodeError, KeyError):
        return visit  # the judge reports what is wrong
    own = without_foreign(section, _host_in(sections))
    sections[SECTION] = msgspec.Raw(msgspec.json.encode(own))
    document["sections"] = msgspec.Raw(msgspec.json.encode(sections))
    return replace(visit, evidence=msgspec.json.encode(document))


def without_foreign(section: RawSection, host: HostInfo | None) -> RawSection:
    """The section. If the BMC belongs to another machine: only the ids of that machine, because
    the rest is not about this node."""
    data = section.get("data")
    if data is None:
        return section
    bmc = {"kind": data.get("kind"), "system_uuid": data.get("system_uuid")}
    bmc["serials"] = data.get("serials")
    matched = match(ids_of_host(host), ids_of_bmc(BmcInfo(**bmc)), kind=bmc["kind"])
    if matched.is_own is not False:
        return section
    why = f"it is the BMC of another machine: {matched.text}"
    return {**section, "data": {**bmc, "errors": dict.fromkeys(data.keys() - bmc.keys(), why)}}


def _host_in(sections: Mapping[str, msgspec.Raw]) -> HostInfo | None:
    """The section `host`; None if it is not there, or not valid."""
    try:
        return typed.decode(bytes(sections["host"]), Section[HostInfo]).data
    except (msgspec.DecodeError, KeyError):
        return None


def _power_text(section: RawSection) -> str:
    data = section.get("data", {})
    power, progress = data.get("power"), data.get("boot_progress")
    if power:
        is_booting = progress not in (None, NO_BOOT)
        booting = f", and that the boot progress is {progress}" if is_booting else ""
        return brief(f"its BMC says that the power is {power}{booting}", 160)
    return brief(f"its power is not known: {section.get('why') or 'the BMC does not say'}", 300)
