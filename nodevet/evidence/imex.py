"""Section imex: peers and channels of NVIDIA's IMEX service."""

from typing import Annotated

from nodevet import bounds
from nodevet.bounds import Text
from nodevet.evidence.core import SectionRecord


class Imex(SectionRecord, frozen=True, kw_only=True):
    """/etc/nvidia-imex/nodes_config.cfg, /dev/nvidia-caps-imex-channels."""

    # addresses of the nodes of its domain; none without the file
    nodes: Annotated[tuple[Text, ...], bounds.IMEX_NODES] | None = None
    channels: int | None = None  # device nodes channel<N>
