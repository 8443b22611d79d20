"""Facts of hosts that differ between two runs: driver, kernel, packages. Pure."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.installed import InstalledPackages
from nodevet.evidence.memory import Memory
from nodevet.evidence.nvme import Nvme

CMDLINE = "kernel command line"
MANY = 60  # facts of one host that are compared


class FactDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed in the same way on several hosts."""

    what: str  # driver, kernel, package tuned
    before: str  # empty: absent
    after: str
    hosts: tuple[str, ...]


def facts(evidence: Evidence) -> dict[str, str]:
    """The software and settings of a host, by name, that two nights should have in common."""
    host = evidence[HostInfo].data or HostInfo()
    gpus = evidence[Gpus].data or Gpus()
    values: dict[str, str | None] = {
        "kernel": host.kernel,
        "OS": host.os_name,
        CMDLINE: host.cmdline,
        "BIOS": host.bios_version,
        "driver": gpus.driver_version,
    }
    if memory := evidence[Memory].data:
        values["memory"] = f"{memory.total_kb / 1_048_576:.0f} GiB" if memory.total_kb else None
    for gpu in gpus.gpus or ():
        slot = f"GPU {gpu.index}"
        values[f"{slot} VBIOS"] = gpu.vbios_version
        values[f"{slot} power limit"] = _watts(gpu.power_limit_mw)
    if rdma := evidence[Infiniband].data:
        for device in rdma.devices or ():
            values[f"RDMA device {device.name} firmware"] = device.fw_ver
    if nvme := evidence[Nvme].data:
        for drive in nvme.controllers or ():
            values[f"NVMe drive {drive.name} firmware"] = drive.firmware
    if installed := evidence[InstalledPackages].data:
        for query in installed.packages or ():
            for package in query.found or ():
                if package.name and package.state not in ("not-installed", "config-files"):
                    values[f"package {package.name}"] = package.version
    return {name: value for name, value in values.items() if value}


def _watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:g} W"


def fact_diffs(pairs: Iterable[tuple[str, Mapping[str, str], Mapping[str, str]]]) -> list[FactDiff]:
    """The facts that changed, each with its hosts. `pairs`: host, facts before, facts after."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for host, before, after in pairs:
        for name, old, new in list(_differing(before, after))[:MANY]:
            groups.setdefault((name, old, new), []).append(host)
    return [
        FactDiff(what=name, before=old, after=new, hosts=tuple(hosts))
        for (name, old, new), hosts in groups.items()
    ]


def _differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for name in {**before, **after}:
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            yield name, old, new
