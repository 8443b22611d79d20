"""What the fixes of PCI registers share: the ids that name a card, and the unit that sets its
registers at every boot."""

import re
from collections.abc import Iterable, Mapping

from nodevet.evidence.document import Evidence
from nodevet.evidence.pci import Pci
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import FixError
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.pci_register import register, set_bits
from nodevet.resource.unit import SetUnit

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
TEXT = """\
# Written by nodevet: the boot-time owner of {check}.
[Unit]
Description={check} of PCI functions, as nodevet set it
After=systemd-modules-load.service network.target openibd.service
After=nvidia-persistenced.service nvidia-fabricmanager.service
Before=slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=5min
ExecStart=/bin/sh -c '\\
    failed=0; \\
{lines}    exit $$failed'

[Install]
WantedBy=multi-user.target
"""
"""Drivers come before it: they may set registers as they start."""


def ids(evidence: Evidence, address: str) -> str:
    """The vendor and device of a function: `15b3:1021`. Raises FixError."""
    if not ADDRESS.fullmatch(address):
        raise FixError(f"{address[:60]!r} is not the address of a PCI function")
    data = evidence[Pci].data
    function = data.by_address.get(address) if data else None
    if function is None or not ID.fullmatch(function.id):
        raise FixError(f"{address}: its vendor and device were not read")
    return function.id


def resources(unit: BootUnit, name: str, addresses: Iterable[str]) -> tuple[Resource, ...]:
    """The unit, and the register of this name of each function."""
    return (*unit.resources, *(register(f"{address}:{name}") for address in addresses))


def actions(
    unit: BootUnit, name: str, boot: Mapping[tuple[str, str], tuple[int, int]], now: Iterable[str]
) -> Actions:
    """Set a register at every boot and now.

    `boot`: (address, ids) -> (value, mask) of each function; `now`: the addresses to set now. At
    boot a card with other ids at the same address keeps its own value.
    """
    values = {address: bits for (address, _), bits in boot.items()}
    lines = "".join(
        f"    setpci -d {card} -s {address} {name}={value:04x}:{mask:04x} || failed=1; \\\n"
        for (address, card), (value, mask) in sorted(boot.items())
    )
    return (
        WriteFile(path=unit.path, content=TEXT.format(check=unit.check, lines=lines)),
        SetUnit(name=unit.name, enabled=True),
        *(set_bits(address, name, *values[address]) for address in now),
    )
