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

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Value,
    fail,
    ok,
    unknown,
)


class Params(CheckParams):
    """`swap: none` or `swap: {maximum_kb: 4194304}`"""

    bare: ClassVar[str] = "maximum_kb"

    maximum_kb: Literal["none"] | Annotated[int, Meta(ge=0)]
    """KiB, all together."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Memory]
    if section.data is None:
        yield unknown(why=f"memory: {section.why}")
        return
    total = section.data.swap_total_kb
    if total is None:
        yield unread(NODE, section.data, "swap_total_kb")
    elif total < 0:
        yield unknown(why=f"swap_total_kb: {total}")
    else:
        most = 0 if params.maximum_kb == "none" else params.maximum_kb
        yield (ok if total <= most else fail)(
            expected=f"at most {most} KiB" if most else "none",
            actual=f"{total} KiB" if total else "none",
        )


def learn(evidence: Evidence) -> Value:
    data = evidence[Memory].data
    if data is None or data.swap_total_kb is None:
        return None
    return data.swap_total_kb or "none"


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=("memory.swap_total_kb",),
    judge=judge,
    unasked="for HGX boards: elsewhere a site may want swap; say swap: none",
    learn=learn,
    severity=Severity.WARNING,
)
