"""Put what a BMC says beside the visit of its node: nodevet.vet.use.beside."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from nodevet.base import typed
from nodevet.base.printable import brief
from nodevet.bmc.use import Asked, RawSection, Readings
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
    """The visit with the section in its evidence; without evidence, its reason says what the BMC
    says of the power."""
    if visit.evidence is None:
        return replace(visit, why=f"{visit.why}; {_power_text(section)}")
    try:
        document = typed.decode(visit.evidence, dict[str, msgspec.Raw])
        sections = typed.decode(bytes(document["sections"]), dict[str, msgspec.Raw])
    except (msgspec.DecodeError, KeyError):
        return visit  # judging it says what is wrong
    sections[SECTION] = msgspec.Raw(msgspec.json.encode(section))
    document["sections"] = msgspec.Raw(msgspec.json.encode(sections))
    return replace(visit, evidence=msgspec.json.encode(document))


def _power_text(section: RawSection) -> str:
    data = section.get("data", {})
    power, progress = data.get("power"), data.get("boot_progress")
    if power:
        is_booting = progress not in (None, NO_BOOT)
        booting = f", and that the boot progress is {progress}" if is_booting else ""
        return brief(f"its BMC says that the power is {power}{booting}", 160)
    return brief(f"its power is not known: {section.get('why') or 'the BMC does not say'}", 300)
