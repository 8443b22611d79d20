"""What the checks of a BMC share."""

from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.document import Evidence
from nodevet.model import Finding, not_applicable, unknown


def bmc_with(evidence: Evidence, field: str, noun: str) -> BmcInfo | Finding:
    """What the BMC reports, or why its `field` (events or parts) cannot be judged as a whole.

    `noun`: what the items of the field are, for the reason.
    """
    section = evidence[BmcInfo]
    bmc = section.data
    if section.status == "absent":
        return not_applicable(why=section.why)
    if bmc is None:
        return unknown(why=section.why)
    items, found = getattr(bmc, field), getattr(bmc, f"{field}_found")
    if items is None:
        return unknown(why=f"{field}: {bmc.why(field)}")
    if len(items) != found:
        return unknown(why=f"{len(items)} of {found} {noun} were read")
    return bmc
