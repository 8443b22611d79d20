"""Whether a BMC belongs to the node for which the inventory names it. Pure.

A system UUID identifies one machine. A serial number does, too, but nodes of one enclosure may all
report the same, so a UUID that differs outweighs it. A placeholder proves nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple
from uuid import UUID

import msgspec

from nodevet.base.printable import brief
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.ids import is_id, is_uuid

PLACEHOLDERS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",  # AMI
        "12345678-1234-5678-90ab-cddeefaabbcc",  # MSI
        "4c4c4544-0000-2010-8020-80c04f202020",  # Dell, without a service tag
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "01020304-0506-0708-090a-0b0c0d0e0f10",
        "00112233-4455-6677-8899-aabbccddeeff",
        "01234567-89ab-cdef-0123-456789abcdef",
    }
)
"""UUIDs of many machines whose vendor wrote none, in one of their byte orders."""
HEX = re.compile(r"[0-9A-Fa-f]{32}")
LEAST = 5  # characters of a serial number that identifies a machine
SHOWN = 80  # characters of an id in a sentence
UUID_TEXT, SERIAL_TEXT = "the same system UUID", "the same serial number"
READS = (
    *("host.system_uuid", "host.system_serial", "host.board_serial"),
    *("bmc.kind", "bmc.system_uuid", "bmc.serials[]"),
)
"""The places in the evidence that `match_in` reads."""


class MachineIds(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a machine."""

    uuid: str | None = None  # 4c4c4544-0051-3510-8052-b4c04f4e4d32; "": a placeholder, or none
    serials: tuple[str, ...] = ()  # of the system and its board, without placeholders
    shared: tuple[str, ...] = ()  # serial numbers that other nodes report too: they prove nothing


NO_IDS = MachineIds()


class BmcMatch(NamedTuple):
    """`is_own`: whether the BMC belongs to the node; None if that cannot be known. `text`: the
    values, in words."""

    is_own: bool | None
    text: str


def machine_ids(uuid: str | None, *serials: str | None) -> MachineIds:
    """The ids that identify a machine. `uuid`: None if it was not read.

    >>> machine_ids("4C4C4544-0051-3510-8052-B4C04F4E4D32", "J5Q8M2", "To be filled by O.E.M.")
    MachineIds(uuid='4c4c4544-0051-3510-8052-b4c04f4e4d32', serials=('J5Q8M2',), shared=())
    """
    own = dict.fromkeys(text for serial in serials if _is_serial(text := (serial or "").strip()))
    return MachineIds(uuid=None if uuid is None else _canonical(uuid), serials=tuple(own))


def node_ids(evidence: Evidence | None) -> MachineIds:
    """The ids that the node reports itself (SMBIOS)."""
    return ids_of_host(evidence[HostInfo].data if evidence else None)


def ids_of_host(host: HostInfo | None) -> MachineIds:
    """The ids of a node; none if it was not read."""
    return machine_ids(host.system_uuid, host.system_serial, host.board_serial) if host else NO_IDS


def without_shared(nodes: Mapping[str, MachineIds]) -> dict[str, MachineIds]:
    """The ids of each node. Those that another node has too identify neither."""
    counts = Counter(
        one for ids in nodes.values() for one in dict.fromkeys((ids.uuid, *ids.serials)) if one
    )
    return {
        name: MachineIds(
            uuid="" if ids.uuid and counts[ids.uuid] > 1 else ids.uuid,
            serials=tuple(one for one in ids.serials if counts[one] == 1),
            shared=tuple(one for one in ids.serials if counts[one] > 1),
        )
        for name, ids in nodes.items()
    }


def confirmed_ids(planned: MachineIds, now: MachineIds) -> MachineIds:
    """The ids of a plan that the node still reports."""
    is_read = None not in (planned.uuid, now.uuid)
    uuid = (now.uuid if now.uuid == planned.uuid else "") if is_read else None
    own, shared = (
        tuple(one for one in now.serials if one in earlier)
        for earlier in (planned.serials, planned.shared)
    )
    return MachineIds(uuid=uuid, serials=own, shared=shared)


def match(node: MachineIds, bmc: MachineIds, *, kind: str | None) -> BmcMatch:
    """Whether a BMC of this kind (redfish, ipmi) belongs to the node. Over IPMI many BMCs report a
    UUID of their own, so one that differs says nothing. There, nodes of one enclosure may share the
    serial number of the product, so the node must also have the others that the BMC reports. Ids
    that identify no machine are ignored, such as those of a plan that someone edited."""
    known = node.shared
    node, bmc = (machine_ids(ids.uuid, *ids.serials) for ids in (node, bmc))
    if node.uuid and bmc.uuid in _spellings(node.uuid):
        return BmcMatch(True, f"{UUID_TEXT} {node.uuid}")
    common = [one for one in node.serials if one in bmc.serials]
    shared = f"{SERIAL_TEXT} {brief(common[0], SHOWN)}" if common else ""
    others = [one for one in bmc.serials if one not in (*node.serials, *known)]
    if shared and kind == "ipmi" and others:
        also = f"{shared}, but the BMC also reports {brief(others[0], SHOWN)}"
        return BmcMatch(None, f"{also}, which the node does not")
    if node.uuid and bmc.uuid and kind != "ipmi":
        uuids = f"its system UUID is {bmc.uuid}, the node's is {node.uuid}"
        if shared or kind != "redfish":
            return BmcMatch(None, f"{shared}, but {uuids}" if shared else uuids)
        return BmcMatch(False, uuids)
    if shared and kind != "ipmi" and None in (node.uuid, bmc.uuid):
        return BmcMatch(None, f"{shared}, but nodevet could not read one of the system UUIDs")
    return BmcMatch(True, shared) if shared else BmcMatch(None, _unproven_text(node, bmc))


def match_in(evidence: Evidence) -> BmcMatch:
    """Whether the BMC whose answer is in the evidence belongs to the node."""
    host, bmc = evidence[HostInfo], evidence[BmcInfo].data or BmcInfo()
    matched = match(ids_of_host(host.data), ids_of_bmc(bmc), kind=bmc.kind)
    why = host.data.errors.get("system_uuid") if host.data else host.why
    is_explained = matched.is_own is None and bool(why)
    return BmcMatch(None, f"{matched.text} ({brief(why, SHOWN)})") if is_explained else matched


def ids_of_bmc(bmc: BmcInfo) -> MachineIds:
    """The ids of the machine that a BMC belongs to."""
    return machine_ids(bmc.system_uuid, *(bmc.serials or ()))


def _unproven_text(node: MachineIds, bmc: MachineIds) -> str:
    if not node.uuid and not node.serials:
        return "nodevet knows no system UUID or serial number of the node"
    if not bmc.uuid and not bmc.serials:
        return "the BMC reports no system UUID or serial number of its own"
    return f"the BMC reports {_listed(bmc)}; the node reports {_listed(node)}"


def _listed(ids: MachineIds) -> str:
    uuid = f"UUID {ids.uuid}" if ids.uuid else ""
    serials = [f"serial number {brief(serial, SHOWN)}" for serial in ids.serials[:2]]
    return ", ".join(filter(None, (uuid, *serials)))


def _is_serial(text: str) -> bool:
    return is_id(text) and len(text) >= LEAST and len(set(text)) > 1


def _canonical(text: str) -> str:
    """A UUID in lower case with dashes; empty for anything else, and for a placeholder."""
    digits = text.strip().replace("-", "")
    if not HEX.fullmatch(digits) or not is_uuid(digits):
        return ""
    uuid = str(UUID(digits))
    return "" if PLACEHOLDERS & _spellings(uuid) else uuid


def _spellings(uuid: str) -> frozenset[str]:
    """The UUID as others may write its bytes. SMBIOS before 2.6 and some BMCs disagree on the order
    of the first three fields (DSP0134, 7.2.1); IPMI sends the last byte first (2.0, 20.8).

    >>> sorted(_spellings("00112233-4455-6677-8899-aabbccddeeff"))[1]
    '33221100-5544-7766-8899-aabbccddeeff'
    """
    own = UUID(uuid)
    swapped = UUID(bytes=own.bytes_le)
    reversed_ = [UUID(bytes=one.bytes[::-1]) for one in (own, swapped)]
    mixed = [UUID(bytes=one.bytes_le) for one in reversed_]
    return frozenset(map(str, chain((own, swapped), reversed_, mixed)))
