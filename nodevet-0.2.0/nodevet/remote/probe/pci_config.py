"""The PCI Express link and ACS in a function's configuration space.

It reads only the necessary registers: each takes a microsecond, and a few devices misbehave when
undefined ones are read. PCI Local Bus 3.0, 6.7; PCI Express Base 5.0, 7.5.3 and 7.7.11; names are
lspci's.
"""

import os
import stat

from nodevet.remote.probe.files import path_under

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

HAS_CAPABILITIES = 0x10  # of the status register
HEADER_TYPE = 0x0E
BRIDGE_OF_CARDS = 2
EXPRESS, ACS = 0x10, 0x0D  # a capability, an extended one
NO_LINK = (9, 10)  # device types: inside the root complex
EXTENDED = 0x100
MOST_CAPABILITIES = 48  # 192 bytes, at least 4 each
MOST_EXTENDED = 480  # 3840 bytes, at least 8 each
ASPM = ("disabled", "L0s", "L1", "L0s L1")
NOT_EXPRESS = "no PCI Express capability"
NO_ACS = "no ACS capability"


class Registers(object):
    """The open configuration space of a function; `close` it."""

    def __init__(self, root: str, path: str) -> None:
        self.file = os.open(path_under(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(self.file)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ValueError("not a regular file")

    def close(self) -> None:
        os.close(self.file)

    def __call__(self, offset: int, size: int) -> int:
        """The number in a register. Raises OSError, ValueError."""
        data = os.pread(self.file, size, offset)
        if len(data) != size:
            is_inside = offset + size <= self.size
            raise ValueError(
                "only root may read it" if is_inside else "beyond the {} bytes".format(self.size)
            )
        return int.from_bytes(data, "little")


def capability(register: "Callable[[int, int], int]", capability_id: int) -> int:
    """The offset of a capability; 0 if there is none. Raises OSError, ValueError."""
    if register(0, 2) == 0xFFFF:
        raise ValueError("the function does not answer")
    if not register(6, 2) & HAS_CAPABILITIES:
        return 0
    offset = (
        register(0x14 if register(HEADER_TYPE, 1) & 0x7F == BRIDGE_OF_CARDS else 0x34, 1) & 0xFC
    )
    for _ in range(MOST_CAPABILITIES):
        if offset < 0x40:
            return 0
        head = register(offset, 2)
        if head & 0xFF == capability_id:
            return offset
        if head & 0xFF == 0xFF:
            raise ValueError("the list of capabilities is broken at {:#x}".format(offset))
        offset = head >> 8 & 0xFC
    raise ValueError("the list of capabilities has no end")


def extended_capability(
    register: "Callable[[int, int], int]", capability_id: int, size: int
) -> int:
    """The offset of an extended capability; 0 if there is none. Raises OSError, ValueError."""
    if size <= EXTENDED:  # a PCI Express function has more
        if capability(register, EXPRESS):
            raise ValueError("its extended configuration space cannot be reached")
        return 0
    offset = EXTENDED
    for _ in range(MOST_EXTENDED):
        if offset < EXTENDED:
            return 0
        head = register(offset, 4)
        if head & 0xFFFF == capability_id:
            return offset
        if head & 0xFFFF == 0xFFFF:
            raise ValueError("the list of extended capabilities is broken at {:#x}".format(offset))
        offset = head >> 20 & 0xFFC
    raise ValueError("the list of extended capabilities has no end")


def express(register: "Callable[[int, int], int]") -> "dict[str, object]":
    """{field: value} of the PCI Express capability. Raises OSError, ValueError."""
    offset = capability(register, EXPRESS)
    if not offset:
        raise ValueError(NOT_EXPRESS)
    kind, supported, control = (
        register(offset + 2, 2) >> 4 & 15,
        register(offset + 4, 4),
        register(offset + 8, 2),
    )
    has_link = kind not in NO_LINK
    return {
        "max_payload_b": 128 << (control >> 5 & 7),
        "max_payload_most_b": 128 << (supported & 7),
        "max_read_request_b": 128 << (control >> 12 & 7),
        "relaxed_ordering": bool(control & 0x10),
        "aspm": ASPM[register(offset + 0x10, 2) & 3] if has_link else ASPM[0],
    }


def target_generation(register: "Callable[[int, int], int]") -> int:
    """The target generation of the link below a port (LnkCtl2); 0 if the port has none. Raises
    OSError, ValueError."""
    offset = capability(register, EXPRESS)
    if not offset:
        raise ValueError(NOT_EXPRESS)
    if register(offset + 2, 2) & 15 < 2:  # capability version 1 has no LnkCtl2
        return 0
    return register(offset + 0x30, 2) & 15


def access_control(register: "Callable[[int, int], int]", size: int) -> "tuple[int, int]":
    """(ACSCap, ACSCtl): SrcValid 1, TransBlk 2, ReqRedir 4, CmpltRedir 8, UpstreamFwd 16,
    EgressCtrl 32, DirectTrans 64. Raises OSError, ValueError."""
    offset = extended_capability(register, ACS, size)
    if not offset:
        raise ValueError(NO_ACS)
    return register(offset + 4, 2), register(offset + 6, 2)
