"""Evidence of nodes with similar hardware, which differ in what is asked for."""

import msgspec

from nodevet.evidence.document import Evidence, decode
from planned_fleet import evidence

WHOLE = {"pci_device": "10de:2330", "pci_subsystem": "10de:16c1", "name": "NVIDIA H100 80GB HBM3"}


def node(
    host: str, *, governor: str = "performance", pages: str = "madvise", **gpu: object
) -> Evidence:
    """A node of eight H100; `gpu`: what is not usual of each of them."""
    document = evidence(host, [WHOLE | gpu] * 8, governor, pages)
    return decode(msgspec.json.encode(document))
