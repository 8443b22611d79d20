"""What the kernel counts by name, of a network interface or an RDMA port."""

from nodevet.base.bounds import Text
from nodevet.evidence.core import Record


class Counter(Record, frozen=True, kw_only=True):
    """One count since the driver was loaded, or since it was last cleared."""

    volatile = ("value",)

    name: Text  # rx_errors, link_downed
    value: int | None = None
