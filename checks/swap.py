"""The node has no more swap than the baseline allows.

**Why it matters.** A job that swaps runs at a fraction of its speed instead of being killed and
restarted, and all ranks of a synchronous job wait for it. By default, the kubelet does not start
on a node with swap.

**Read from** /proc/meminfo, SwapTotal: all active swap files, partitions and zram devices
together.

**To fix it** `swapoff -a` turns it off now; it comes back at boot unless its line is removed from
/etc/fstab, or its unit is masked: `systemctl list-units --type swap` names them. zram comes from
zram-generator or zramswap.service.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.one_value import node_value, ok_if
from nodevet.evidence.memory import Memory
from nodevet.model import Area, CheckParams, Finding


class Params(CheckParams):
    """`swap: none` or `swap: {maximum_kb: 4194304}`"""

    bare: ClassVar[str] = "maximum_kb"

    maximum_kb: Literal["none"] | Annotated[int, Meta(ge=0)]
    """KiB, all together."""


def judge(params: Params, total: int) -> Finding:
    most = 0 if params.maximum_kb == "none" else params.maximum_kb
    return ok_if(
        total <= most,
        expected=f"at most {most} KiB" if most else "none",
        actual=f"{total} KiB" if total else "none",
    )


CHECK = node_value(
    Params,
    Memory,
    "swap_total_kb",
    judge=judge,
    learn=lambda total: total or "none",
    area=Area.MEMORY,
    unasked="for HGX boards: elsewhere a site may want swap; say swap: none",
)
