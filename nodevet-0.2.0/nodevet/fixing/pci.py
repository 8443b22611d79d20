"""What the fixes of PCI registers share: the ids that name a card, and the unit that sets its
registers at every boot."""

import re
from collections.abc import Mapping

from nodevet.evidence.document import Evidence
from nodevet.evidence.pci import Pci
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.gpus import common_value
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.remote.pci_names import ADDRESS
from nodevet.resource.file import WriteFile
from nodevet.resource.pci_register import register, set_bits
from nodevet.resource.unit import SetUnit

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
    {command}'

[Install]
WantedBy=multi-user.target
"""
"""Drivers come before it: they may set registers as they start."""


def ids(evidence: Evidence, address: str) -> str:
    """The vendor and device of a function: `15b3:1021`. Raises FixError."""
    if not ADDRESS.match(address):
        raise FixError(f"{address[:60]!r} is not the address of a PCI function")
    data = evidence[Pci].data
    function = data.by_address.get(address) if data else None
    if function is None or not ID.fullmatch(function.id):
        raise FixError(f"{address}: its vendor and device were not read")
    return function.id


def unit_file(unit: BootUnit, script: str) -> WriteFile:
    """Write a unit that runs a script of sh, without its own quotes ('), at boot."""
    escaped = script.replace("%", "%%").replace("$", "$$")  # systemd.unit(5), systemd.exec(5)
    command = escaped.replace("\n", " \\\n    ")
    return WriteFile(path=unit.path, content=TEXT.format(check=unit.check, command=command))


def change(
    unit: BootUnit,
    name: str,
    boot: Mapping[str, tuple[str, int, int]],
    failed: Mapping[str, Finding],
) -> PlannedChange:
    """Set a register: now in each function with a failed finding, and at every boot.

    `boot`: by address, the ids, value and mask of each function. At boot a card with other ids
    at that address keeps its own value.
    """
    lines = "".join(
        f"setpci -d {card} -s {address} {name}={value:04x}:{mask:04x} || failed=1;\n"
        for address, (card, value, mask) in sorted(boot.items())
    )
    labels = {finding.subject.label: finding for finding in failed.values()}
    return PlannedChange(
        expected=common_value({label: finding.expected for label, finding in labels.items()}),
        actual=common_value({label: finding.actual for label, finding in labels.items()}),
        subjects=tuple(labels),
        actions=(
            unit_file(unit, f"failed=0;\n{lines}exit $failed"),
            SetUnit(name=unit.name, enabled=True),
            *(set_bits(address, name, *boot[address][1:]) for address in failed),
        ),
        resources=(*unit.resources, *(register(f"{address}:{name}") for address in failed)),
        risk=Risk.IDLE,
    )
