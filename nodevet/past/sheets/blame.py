"""Since when hosts fail a check and what changed with it, as a sheet. Pure."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from nodevet.base.printable import brief, plain
from nodevet.model import show
from nodevet.past.blame import LONG_DAYS, Blame, ChangeLine, DriftGroup, DriftLook
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset

LONGEST = 60  # columns of one value
KNOWN = {
    "host.kernel": "kernel",
    "host.cmdline": "kernel command line",
    "host.boot_id": "boot",
    "host.machine_id": "machine id",
    "host.bios_version": "BIOS",
    "host.bios_date": "BIOS date",
    "host.os_name": "OS",
    "gpu.driver_version": "driver",
    "gpu.gpus[].vbios_version": "VBIOS",
    "gpu.gpus[].uuid": "GPU",
    "gpu.gpus[].serial": "GPU serial number",
}
UNTOLD = {"host.boot_id": "rebooted", "host.machine_id": "re-imaged, or another machine"}
_PACKAGE = re.compile(r"installed\.packages\[([^\]]+)\]\.found\[[^\]]*\]\.(version|state|held)")
_UNIT = re.compile(r"services\.units\[([^\]]+)\]\.(.+)")
_SYSCTL = re.compile(r"sysctl\.parameters\[([^\]]+)\]\.value")


def blame_sheet(found: Blame, clock: Clock) -> Sheet:
    """The newest drift is the first."""
    hosts = [look.host for each in found.groups for look in each.looks]
    hosts += [look.host for look in (*found.always, *found.unread)]
    number = count(len(hosts), "host")
    title = f"{plain(found.check)}: {number} {'fails' if len(hosts) == 1 else 'fail'}"
    if not found.now:
        title = f"{plain(found.check)}: no host fails now; {number} did"
    return Sheet(
        title=title,
        kind="blame",
        blocks=tuple(_group(each, clock) for each in found.groups),
        end=" ".join((*_always(found.always, clock), *_unread(found.unread))),
    )


def _group(group: DriftGroup, clock: Clock) -> TableBlock:
    number = len(group.looks)
    title = f"{count(number, 'host')} since {clock.both(group.bad.at)}: {nodeset(group.hosts)}"
    rows = tuple(_row(line, group) for line in group.changes)
    note = " ".join(_notes(group, clock))
    if clear := group.clear:
        note = f"{_sentence(clear, group)} {note}"
    heads = ("on", "others", "what changed", "from", "to") if rows else ()
    return TableBlock(title=title, heads=heads, rows=rows, note=note.strip())


def _row(line: ChangeLine, group: DriftGroup) -> tuple[Cell, ...]:
    sole = group.is_sole(line) and not line.own
    what = words(line.path) + (" (what the check reads)" if line.own else "")
    return (
        Cell(_of(len(line.drifted), len(group.looks)), right=True),
        Cell(_of(line.others, group.others), right=True),
        Cell(what, "quiet" if line.own else "fail" if sole else ""),
        Cell(value(line.before)),
        Cell(_after(line)),
    )


def _of(some: int, every: int) -> str:
    if some == every:
        return f"all {every:,}" if every else "-"
    return f"{some:,} of {every:,}" if some else f"none of {every:,}"


def _after(line: ChangeLine) -> str:
    if line.after:
        return value(line.after)
    if line.before:
        return "gone"
    return UNTOLD.get(line.path, "differs from host to host")


def words(path: str) -> str:
    """`package tuned`, `kernel`; what has no name of its own by its place in the evidence."""
    if path in KNOWN:
        return KNOWN[path]
    if found := _PACKAGE.fullmatch(path):
        return f"package {plain(found[1])}" + ("" if found[2] == "version" else f" {found[2]}")
    if found := _UNIT.fullmatch(path):
        return f"unit {plain(found[1])} {found[2]}"
    if found := _SYSCTL.fullmatch(path):
        return f"sysctl {plain(found[1])}"
    return brief(path, LONGEST)


def value(text: str) -> str:
    """JSON as people read it."""
    return brief(show(msgspec.json.decode(text)), LONGEST) if text else ""


def _sentence(line: ChangeLine, group: DriftGroup) -> str:
    """`All 3 and none of the other 15 got package tuned 2.24 in between.`"""
    got = value(line.after) or _after(line)
    told = got if not line.after and line.path in UNTOLD else f"got {words(line.path)} {got}"
    if len(group.looks) == 1:
        return f"It {told} in between; none of the other {group.others:,} did."
    return f"All {len(group.looks):,} and none of the other {group.others:,} {told} in between."


def _notes(group: DriftGroup, clock: Clock) -> Iterator[str]:
    """What must be known to believe it."""
    yield f"Last seen good: {clock.both(group.good.at)}."
    if group.days > LONG_DAYS:
        days = f"{group.days:.0f} days"
        yield f"Up to {days} lie between the looks: much else may have happened in them."
    if any(look.pruned for look in group.looks):
        yield "Evidence of nights in between was pruned."
    if group.rule:
        rules = ", ".join(map(plain, group.rule))
        yield f"What judges changed, too: {rules}. The rule may have moved, and not the hosts."
    if not group.others:
        yield "No other host was looked at in both runs: what changed cannot be told apart."
    elif not group.clear:
        yield "Nothing else that was read is on all of these and on no other host."
    elif len(group.looks) == 1:
        yield "One host alone proves little."
    if group.more:
        yield f"{group.more:,} more values changed like these."


def _always(looks: Sequence[DriftLook], clock: Clock) -> Iterator[str]:
    if looks:
        since = clock.both(min(look.bad.at for look in looks))
        named = nodeset([look.host for look in looks])
        yield f"Failed when first judged, {since}, so nothing is to compare with: {named}."


def _unread(looks: Sequence[DriftLook]) -> Iterator[str]:
    if looks:
        named = nodeset([look.host for look in looks])
        yield f"Evidence of before or of then was pruned: {named}."
