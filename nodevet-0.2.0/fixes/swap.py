"""Turn off swap, now and at every boot.

**Now** `swapoff` of each active swap file and partition.

**At every boot** the fix comments out the lines of /etc/fstab that turn swap on, each kept behind
`# Off by nodevet:`. It masks (`systemctl mask`) units of type swap from other sources: systemd
generates them from the disks, or packages install them.

**Risk** idle if nothing is swapped out: a job that needs almost all of the node's memory would run
out of memory. drain if something is swapped out: the kernel must read it back, which can take
minutes and stall processes that wait for it.

**Rollback** restores /etc/fstab byte by byte, with mode and owner, unmasks the units and turns the
swap on again, with its priority. Data that was swapped out stays in memory.

**What it cannot do.** It can only set `none`: the baseline does not say which of several swap areas
may stay. It does not turn off swap that holds more than half of MemAvailable: that number is an
estimate, and the node continues to need memory. zram comes from zram-generator or zramswap.service;
turn it off in their configuration. A unit in /etc/systemd/system was written by hand, and cannot be
masked. The fix does not write an /etc/fstab that has a password, is a link or is not UTF-8 text.
The swap file stays on the disk, and a hibernated image in the swap is lost. Scripts and cron jobs
that turn swap on conflict.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from nodevet.checks.swap import Params
from nodevet.evidence.core import Record
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Fstab, Memory, SwapUnit
from nodevet.evidence.memory import Swap as Active
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.remote.fstab import is_on_at_boot
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.swap import off
from nodevet.resource.unit import RELOAD, SetUnit

FSTAB = "/etc/fstab"
MARK = "# Off by nodevet: "
HAND_MADE = "/etc/systemd/system/"
NAME = re.compile(r"/[!-\[\]-~]+")  # printable, without the backslash of an escape
SHARE = 2  # MemAvailable must be this many times the swapped-out memory
SECONDS = 900  # time limit of swapoff, which reads all swapped-out memory back


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that turns all swap off; see `FIX`."""
    if params.maximum_kb not in ("none", 0):
        raise FixError(
            f"the baseline allows {params.maximum_kb} KiB, but does not say which swap may stay: "
            "reduce it by hand, or expect none"
        )
    memory = evidence[Memory].data
    if memory is None:
        raise FixError(f"memory: {evidence[Memory].why}")
    if failed[0].actual != f"{memory.swap_total_kb} KiB":
        raise FixError("the finding does not come from this evidence")
    active = active_swaps(memory)
    used = swapped_out(memory, active)
    table, units = at_boot(memory)
    names = tuple(swap.name for swap in active)
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        actions=actions(table, units, names),
        resources=(
            *([Resource(kind="file", name=FSTAB)] if table else ()),
            *(Resource(kind="unit", name=unit) for unit in units),
            *(Resource(kind="swap", name=name) for name in names),
        ),
        risk=Risk.DRAIN if used else Risk.IDLE,
        note=f"{used} KiB are swapped out and return to memory" if used else "",
    )


def active_swaps(memory: Memory) -> tuple[Active, ...]:
    """The active swap areas, lowest priority first: a rollback turns them on in the reverse order,
    so that the kernel gives each its priority again. Raises FixError."""
    if memory.swaps is None:
        raise FixError(f"/proc/swaps: {memory.why('swaps')}")
    if not memory.swaps:
        raise FixError(f"/proc/meminfo has {memory.swap_total_kb} KiB, but /proc/swaps lists none")
    for swap in memory.swaps:
        if not NAME.fullmatch(swap.name):
            raise FixError(f"{swap.name[:60]!r} in /proc/swaps is not a plain path")
        if swap.name.startswith("/dev/zram"):
            raise FixError(
                f"{swap.name} is compressed memory: remove zram-generator or zramswap.service, or "
                "its configuration, which creates it again at every boot"
            )
    if len({swap.name for swap in memory.swaps}) < len(memory.swaps):
        raise FixError("/proc/swaps lists one area twice")
    key = {swap.name: read(swap, "priority", f"{swap.name}: priority: ") for swap in memory.swaps}
    return tuple(sorted(memory.swaps, key=lambda swap: (key[swap.name], swap.name)))


def swapped_out(memory: Memory, active: Iterable[Active]) -> int:
    """KiB that are swapped out. Raises FixError if they do not fit into memory."""
    total_kb, free_kb, available_kb = (
        read(memory, field, f"{field}: ")
        for field in ("swap_total_kb", "swap_free_kb", "available_kb")
    )
    used_by_swap = [read(swap, "used_kb", f"{swap.name}: used_kb: ") for swap in active]
    if not 0 <= free_kb <= total_kb or min(used_by_swap) < 0:
        raise FixError(
            f"implausible amount of swapped-out memory: {total_kb - free_kb}, {used_by_swap} KiB"
        )
    used = max(total_kb - free_kb, sum(used_by_swap))
    if used * SHARE > available_kb:
        raise FixError(
            f"{used} KiB are swapped out (SwapTotal, SwapFree, /proc/swaps), but only "
            f"{available_kb} KiB are available for them (MemAvailable): end processes that use "
            "much memory, or reboot"
        )
    return used


def read(record: Record, field: str, name: str) -> int:
    """A number of the evidence. Raises FixError if it was not read."""
    value: int | None = getattr(record, field)
    if value is None:
        raise FixError(f"{name}{record.why(field)}")
    return value


def at_boot(memory: Memory) -> tuple[WriteFile | None, tuple[str, ...]]:
    """/etc/fstab with its swap lines commented out, if the node has the file, and the units to
    mask.

    Raises FixError."""
    if memory.fstab is None:
        raise FixError(f"{FSTAB}: {memory.why('fstab')}")
    if memory.swap_units is None:
        raise FixError(f"units of type swap: {memory.why('swap_units')}")
    if len(memory.fstab) > 1:
        raise FixError(f"{FSTAB} is in the evidence twice")
    table = next(map(without_swap, memory.fstab), None)
    return table, tuple(maskable_name(unit) for unit in memory.swap_units)


def without_swap(table: Fstab) -> WriteFile:
    if None in (table.text, table.mode, table.owner, table.group):
        raise FixError(f"{FSTAB}: the evidence has only a part of the file")
    lines = (table.text or "").split("\n")
    new = "\n".join(MARK + line if is_on_at_boot(line) else line for line in lines)
    mode, owner, group = table.mode or 0, table.owner or 0, table.group or 0
    return WriteFile(path=FSTAB, content=new, mode=mode, owner=owner, group=group)


def maskable_name(unit: SwapUnit) -> str:
    """The name of a unit that can be masked. Raises FixError."""
    if unit.path is None:
        raise FixError(f"{unit.name}: path: {unit.why('path')}")
    if "zram" in (unit.what or ""):
        raise FixError(
            f"{unit.name} belongs to zram: turn off its creator, probably zram-generator"
        )
    if unit.path.startswith(HAND_MADE):
        raise FixError(
            f"{unit.path} turns it on at boot and was written by hand: systemctl disable --now "
            f"{unit.name}"
        )
    return unit.name


def actions(table: WriteFile | None, units: Iterable[str], names: Iterable[str]) -> Actions:
    """Actions for the next boot come first: if a later action fails, no swap returns by itself."""
    return (
        *((table, RELOAD) if table else ()),
        *(SetUnit(name=unit, masked=True) for unit in units),
        *(off(name, seconds=SECONDS) for name in names),
    )


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("sysctl",))
