"""Every software RAID array and ZFS pool is complete and active.

**Why it matters.** An array that lost a disk continues to work, but slower and without redundancy:
if the next disk fails, the node or its data is lost. Nobody notices unless someone reads mdadm's
mail.

**Read from** /proc/mdstat, /sys/block/md*/md/array_state and /proc/spl/kstat/zfs/*/state. nodevet
runs neither `mdadm` nor `zpool`, and does not check RAID controllers (storcli, ssacli).

**Verdicts.** An array fails if it is inactive, has fewer active devices than expected, even during
a rebuild, or has a failed member. A check and a resync of a complete array are not failures. A
container of IMSM or DDF metadata is not judged; its arrays are. A node without arrays and pools is
not applicable, unless the baseline sets their number (`arrays`, `pools`).

**To fix it** `mdadm --detail /dev/mdN` names the disk, `smartctl -x` shows its state. Run `mdadm
/dev/mdN --fail /dev/sdX1 --remove /dev/sdX1`, replace the disk, partition it like its peers, and
run `mdadm /dev/mdN --add /dev/sdX1`. For ZFS: `zpool status -x`, `zpool replace`.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import of_section, reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.raid import MdArray, Raid, ZfsPool
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    Verdict,
    compare,
    fail,
    not_applicable,
    ok,
    unknown,
)

BROKEN = ("broken", "inactive", "clear")
NO_DISK = "`mdadm --detail` of the array names the missing disk; `smartctl -x` shows its state"
NOT_STARTED = "`mdadm --detail` and `journalctl -b -k | grep md` show why it was not started"
ARRAYS = (
    "`mdadm --examine --scan` lists the arrays on the disks; `mdadm --assemble --scan` starts them"
)
POOLS = "`zpool import` lists the pools that can be imported"
NEEDED = ("active", "container", "failed", "level")
Count = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`raid: {}` or `raid: {arrays: 2}` or `raid: {pools: 1}`"""

    arrays: Count | None = None
    """The number of software RAID arrays."""
    pools: Count | None = None
    """The number of ZFS pools."""


@of_section(Raid, "RAID")
def judge(raid: Raid, evidence: Evidence, params: Params) -> Iterator[Finding]:
    findings = [*judge_arrays(raid, params), *judge_pools(raid, params)]
    yield from findings
    if not findings:
        yield not_applicable(why="the node has neither software RAID nor a ZFS pool")


def judge_arrays(raid: Raid, params: Params) -> Iterator[Finding]:
    if raid.arrays is None:
        yield unread(NODE, raid, "arrays")
    elif raid.arrays_found != len(raid.arrays):
        yield unknown(why=f"{len(raid.arrays)} of {raid.arrays_found} arrays were read")
    else:
        arrays = [array for array in raid.arrays if not array.container]
        unsure = [array for array in arrays if array.container is None]
        if params.arrays is not None and unsure:
            yield unread(NODE, unsure[0], "container")
        elif params.arrays is not None:
            yield judge_count("arrays", params.arrays, len(arrays), ARRAYS)
        for array in arrays:
            yield from judge_array(array)


def judge_count(name: str, expected: int, actual: int, advice: str) -> Finding:
    advice = "" if expected == actual else advice
    return compare(NODE, expected={name: expected}, actual={name: actual}, advice=advice)


def judge_array(array: MdArray) -> Iterator[Finding]:
    """The findings about the state and the devices of an array; of an inactive array, its devices
    only if they fail or are unknown."""
    subject = Subject(kind="raid", id=array.name)
    doubt = next((field for field in NEEDED if getattr(array, field) is None), None)
    if doubt:
        yield unread(subject, array, doubt)
        return
    devices = judge_devices(array, subject)
    if array.active and array.array_state not in BROKEN:
        yield devices
        return
    actual = str(array.array_state) if array.active else "inactive"
    yield fail(subject, expected="active", actual=actual, advice=NOT_STARTED)
    if devices.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        yield devices


def judge_devices(array: MdArray, subject: Subject) -> Finding:
    failed = ", ".join(array.failed or ())
    if array.devices is None or array.devices_active is None:
        return judge_without_count(subject, array, failed)
    complete = f"{array.devices} of {array.devices} devices"
    actual = f"{array.devices_active} of {array.devices} devices"
    if not 0 <= array.devices_active <= array.devices:
        return unknown(subject, why=f"devices_active: {actual}")
    if array.devices_active < array.devices or failed:
        shown = f"{actual}, failed: {failed}" if failed else actual
        return fail(subject, expected=complete, actual=shown, why=progress(array), advice=NO_DISK)
    return ok(subject, expected=complete, actual=actual, why=progress(array))


def judge_without_count(subject: Subject, array: MdArray, failed: str) -> Finding:
    """The finding of an array without redundancy, which needs all its devices."""
    if failed:
        return fail(subject, expected="active", actual=f"failed: {failed}", advice=NO_DISK)
    if not str(array.level).startswith(("raid0", "linear", "faulty")):
        return unread(subject, array, "devices")
    if array.array_state is None:
        return unread(subject, array, "array_state")
    return ok(subject, expected="active", actual="active")


def progress(array: MdArray) -> str:
    """As `recovery: 8.5%`."""
    if not array.sync_action or array.sync_percent is None:
        return array.sync_action or ""
    return f"{array.sync_action}: {array.sync_percent:g}%"


def judge_pools(raid: Raid, params: Params) -> Iterator[Finding]:
    if raid.pools is None:
        yield unread(NODE, raid, "pools")
    elif raid.pools_found != len(raid.pools):
        yield unknown(why=f"{len(raid.pools)} of {raid.pools_found} pools were read")
    else:
        if params.pools is not None:
            yield judge_count("pools", params.pools, len(raid.pools), POOLS)
        yield from map(judge_pool, raid.pools)


def judge_pool(pool: ZfsPool) -> Finding:
    subject = Subject(kind="zpool", id=pool.name)
    if pool.state is None:
        return unread(subject, pool, "state")
    advice = "" if pool.state == "ONLINE" else "`zpool status -x` names the disk and the remedy"
    return compare(subject, expected="ONLINE", actual=pool.state, advice=advice)


def learn(evidence: Evidence) -> Value:
    data = evidence[Raid].data
    if data is None or data.arrays is None or data.pools is None:
        return None
    arrays = sum(not array.container for array in data.arrays)
    counts = {"arrays": arrays, "pools": len(data.pools)}
    return {name: count for name, count in counts.items() if count}


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *reads_of("raid.arrays[]", "active", "array_state", "container", "devices"),
        *reads_of("raid.arrays[]", "devices_active", "failed[]", "level", "name"),
        "raid.arrays_found",
        *reads_of("raid.pools[]", "name", "state"),
        "raid.pools_found",
    ),
    judge=judge,
    unasked="for servers and workstations: `generic` has only checks for any node",
    learn=learn,
)
