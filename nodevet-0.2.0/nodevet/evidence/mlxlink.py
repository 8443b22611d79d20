"""Section mlxlink: how good the links of Mellanox NICs are, only if a baseline asks for it."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import Record, SectionRecord, clear_unknown_words


class LinkQuality(Record, frozen=True, kw_only=True):
    """What `mlxlink -d <device> -c --json` reports about a port."""

    volatile = ("minutes", "effective_ber", "raw_ber")

    device: Text  # mlx5_0
    state: Text | None = None  # Active
    minutes: Real | None = None  # since the counters were cleared, or the link came up
    effective_ber: Real | None = None  # bit errors beyond FEC, of each bit
    raw_ber: Real | None = None  # before FEC
    effective_errors: int | None = None
    link_downs: int | None = None

    def __post_init__(self) -> None:
        clear_unknown_words(self, "state")


class Mlxlink(SectionRecord, frozen=True, kw_only=True):
    """The ports of the RDMA devices that a baseline names; `error` without mlxlink."""

    unique = ("links[].device",)
    plural = "links"

    links: Annotated[tuple[LinkQuality, ...], bounds.RDMA_DEVICES] | None = None
    found: Annotated[tuple[Text, ...], bounds.RDMA_DEVICES] | None = None  # devices that were asked
