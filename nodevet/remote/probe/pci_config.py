"""What a function's configuration space says of its PCI Express link and of ACS.

Only the registers that are needed are read: each takes the hardware a microsecond, and a few
devices misbehave when undefined ones are read. PCI Local Bus 3.0, 6.7; PCI Express Base 5.0,
7.5.3 and 7.7.11; names are lspci's.
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
MOST_CAPABILITIES = 48  # 192 bytes, of which the smallest takes 4
MOST_EXTENDED = 480  # 3840 bytes, of which the smallest takes 8
ASPM = ("disabled", "L0s", "L1", "L0s L1")
NOT_EXPRESS = "no PCI Express capability"
NO_ACS = "no ACS capability"


class Registers(object):
    """The configuration space of one function, open. Close it."""

    def __init__(self, root: str, path: str) -> None:
        self.file = os.open(path_under(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(self.file)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ValueError("not a regular file")

    def close(self) -> None:
        os.close(self.file)

    def __call__(self, at: int, size: int) -> int:
        """The number in a register. Raises OSError, ValueError."""
        data = os.pread(self.file, size, at)
        if len(data) != size:
            here = at + size <= self.size
            raise ValueError(
                "only root may read it" if here else "beyond the {} bytes".format(self.size)
            )
        return int.from_bytes(data, "little")


def capability(word: "Callable[[int, int], int]", wanted: int) -> int:
    """Where a capability begins; 0 if there is none. Raises OSError, ValueError."""
    if word(0, 2) == 0xFFFF:
        raise ValueError("the function does not answer")
    if not word(6, 2) & HAS_CAPABILITIES:
        return 0
    at = word(0x14 if word(HEADER_TYPE, 1) & 0x7F == BRIDGE_OF_CARDS else 0x34, 1) & 0xFC
    for _ in range(MOST_CAPABILITIES):
        if at < 0x40:
            return 0
        head = word(at, 2)
        if head & 0xFF == wanted:
            return at
        if head & 0xFF == 0xFF:
            raise ValueError("the list of capabilities is broken at {:#x}".format(at))
        at = head >> 8 & 0xFC
    raise ValueError("the list of capabilities has no end")


def extended(word: "Callable[[int, int], int]", wanted: int, size: int) -> int:
    """Where an extended capability begins; 0 if there is none. Raises OSError, ValueError."""
    if size <= EXTENDED:  # a PCI Express function has more, whether or not it can be reached
        if capability(word, EXPRESS):
            raise ValueError("its extended configuration space cannot be reached")
        return 0
    at = EXTENDED
    for _ in range(MOST_EXTENDED):
        if at < EXTENDED:
            return 0
        head = word(at, 4)
        if head & 0xFFFF == wanted:
            return at
        if head & 0xFFFF == 0xFFFF:
            raise ValueError("the list of extended capabilities is broken at {:#x}".format(at))
        at = head >> 20 & 0xFFC
    raise ValueError("the list of extended capabilities has no end")


def express(word: "Callable[[int, int], int]") -> "dict[str, object]":
    """The settings of the PCI Express capability, by field. Raises OSError, ValueError."""
    at = capability(word, EXPRESS)
    if not at:
        raise ValueError(NOT_EXPRESS)
    kind, supported, control = word(at + 2, 2) >> 4 & 15, word(at + 4, 4), word(at + 8, 2)
    linked = kind not in NO_LINK
    return {
        "max_payload_b": 128 << (control >> 5 & 7),
        "max_payload_most_b": 128 << (supported & 7),
        "max_read_request_b": 128 << (control >> 12 & 7),
        "relaxed_ordering": bool(control & 0x10),
        "aspm": ASPM[word(at + 0x10, 2) & 3] if linked else ASPM[0],
    }


def target_generation(word: "Callable[[int, int], int]") -> int:
    """The generation that the link below a port is to train to, by its LnkCtl2; 0 if the port does
    not say. Raises OSError, ValueError."""
    at = capability(word, EXPRESS)
    if not at:
        raise ValueError(NOT_EXPRESS)
    if word(at + 2, 2) & 15 < 2:  # the version of the capability: the first has no such register
        return 0
    return word(at + 0x30, 2) & 15


def access_control(word: "Callable[[int, int], int]", size: int) -> "tuple[int, int]":
    """(ACSCap, ACSCtl): SrcValid 1, TransBlk 2, ReqRedir 4, CmpltRedir 8, UpstreamFwd 16,
    EgressCtrl 32, DirectTrans 64. Raises OSError, ValueError."""
    at = extended(word, ACS, size)
    if not at:
        raise ValueError(NO_ACS)
    return word(at + 4, 2), word(at + 6, 2)
