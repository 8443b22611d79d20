"""The node has no more swap than the baseline allows.

**Why it matters.** The kernel lets a job swap instead of killing it: it runs at a fraction of its
speed, and all ranks of a synchronous job wait for it. By default, the kubelet does not start on a
node with swap.

**Read from** /proc/meminfo, SwapTotal: the total of all active swap files, partitions and zram
devices.

**To fix it** `swapoff -a` turns it off now. It returns at boot unless you remove its line from
/etc/fstab, or mask its unit: `systemctl list-units --type swap` names the units. zram comes from
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
    """The most swap in KiB, in total."""


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
    unasked="for HGX boards: other nodes may need swap; write swap: none",
)
