"""A register of a PCI function, <address>:<register as setpci names it>."""

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.pci_names import MASKS, REGISTER
from nodevet.remote.probe.collectors.pci import DEVICES
from nodevet.remote.probe.pci_config import (
    ACS,
    EXPRESS,
    NO_ACS,
    NOT_EXPRESS,
    Registers,
    capability,
    extended_capability,
)

CONTROL = "CAP_EXP+8.w"


def look(root: str, name: str) -> "dict[str, object]":
    """The bits of the register that fixes set, as a number; absent if there is no such function."""
    match = REGISTER.match(name)
    if match is None:
        raise ValueError("not a valid name of a register")
    address, register = match.groups()
    try:
        registers = Registers(root, "{}/{}/config".format(DEVICES, address))
    except FileNotFoundError:
        return absent()
    try:
        return present(read(registers, register) & MASKS[register])
    finally:
        registers.close()


def read(registers: "Registers", register: str) -> int:
    """Raises OSError, ValueError."""
    if register == CONTROL:
        offset, place, missing = capability(registers, EXPRESS), 8, NOT_EXPRESS
    else:
        offset, place, missing = extended_capability(registers, ACS, registers.size), 6, NO_ACS
    if not offset:
        raise ValueError(missing)
    return registers(offset + place, 2)


def patterns(root: str, name: str) -> "Patterns":
    """Commands that set registers, unless they name only the other one; mlxconfig keeps some."""
    if name.endswith(CONTROL):
        return Patterns(r"\bsetpci\b(?!.*ECAP_ACS).*=|mlxconfig\b.*(?:MAX_ACC_OUT_READ|PCI_WR_ORD)")
    return Patterns(r"\bsetpci\b(?!.*CAP_EXP).*=")
