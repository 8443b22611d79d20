"""Section imex: peers and channels of NVIDIA's IMEX service."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import SectionRecord

IMEX_NODES = at_most(1024)  # of one NVLink domain, which has 18 trays


class Imex(SectionRecord, frozen=True, kw_only=True):
    """/etc/nvidia-imex/nodes_config.cfg, /dev/nvidia-caps-imex-channels."""

    # addresses of the nodes of its domain; none without the file
    nodes: Annotated[tuple[Text, ...], IMEX_NODES] | None = None
    channels: int | None = None  # device nodes channel<N>
