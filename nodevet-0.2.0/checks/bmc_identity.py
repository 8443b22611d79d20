"""The BMC that the inventory names belongs to the node.

**Why it matters.** If the inventory has the address of another machine's BMC, every finding about
fans and power supplies is about that machine, and a power cycle would switch that machine off.

**Read from** the node: `product_uuid`, `product_serial` and `board_serial` in
`/sys/class/dmi/id`, which only root may read. From the BMC, over Redfish: `UUID`, `SerialNumber`
and `SKU` of the system; over IPMI: the system GUID, and the serial numbers of product and board in
its FRU. The machine that runs nodevet asks the BMC.

**Verdicts.** The check passes if both report the same system UUID, in any of the byte orders that
SMBIOS and IPMI use, or the same serial number; over IPMI the node must have every serial number
that the BMC reports. It fails if the BMC reports another UUID over Redfish, and no serial number of
the node. In all other cases it is unknown: for example, if the node or the BMC reports nothing that
identifies a machine (`To be filled by O.E.M.`, zeros), or if, over Redfish, the serial numbers are
equal and the UUIDs differ or one was not read. Over IPMI it is unknown if the BMC reports another
serial number, as nodes of one enclosure do, or if only the GUID differs, because many BMCs report a
GUID of their own. If the inventory names no BMC for a host, the check is not applicable there.

**To fix it** correct `bmc` of the host in the inventory: `nodevet bmc show` prints what each BMC
reports. Until then nodevet judges nothing else that this BMC reports, and does not switch the node
off. If the check is unknown, first check the address of the BMC; then see
[whose BMC it is](https://github.com/nodevet/nodevet/blob/main/docs/bmc.md#whose-bmc-it-is).
"""

from collections.abc import Iterator

from nodevet.checking.bmc_identity import READS, ids_of_bmc, match_in, node_ids
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.document import Evidence
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

WHY = "its BMC reports the system UUID of another machine"
ADVICE = "correct `bmc` of this host in the inventory; `nodevet bmc show` prints what BMCs report"
PROVE = (
    "first check the address of the BMC in the inventory; to prove it, run the probe as root, or "
    "write the node's serial number into the FRU of the BMC"
)


class Params(CheckParams):
    """`bmc_identity: {}`"""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[BmcInfo]
    if section.data is None:
        not_read = not_applicable if section.status == "absent" else unknown
        yield not_read(why=section.why)
        return
    found = match_in(evidence)
    if found.is_own is None:
        yield unknown(why=found.text, advice=PROVE)
    elif found.is_own:
        yield ok()
    else:
        ids = node_ids(evidence).uuid, ids_of_bmc(section.data).uuid
        yield fail(expected=ids[0], actual=ids[1], why=WHY, advice=ADVICE)


CHECK = Check(
    params=Params,
    area=Area.CHASSIS,
    reads=READS,
    explains=("bmc", "host"),
    judge=judge,
    actions={ADVICE: NeededAction.SITE},
    severity=Severity.CRITICAL,
    unasked="only for nodes whose BMC the inventory names: write bmc_identity: {}",
)
