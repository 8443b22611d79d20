"""Since when hosts fail a check, and what changed at that time, as a sheet. Pure."""

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


def blame_sheet(blame: Blame, clock: Clock) -> Sheet:
    """The groups of hosts, the newest drift first."""
    hosts = [look.host for group in blame.groups for look in group.looks]
    hosts += [look.host for look in (*blame.always, *blame.unread)]
    number = count(len(hosts), "host")
    title = f"{plain(blame.check)}: {number} {'fails' if len(hosts) == 1 else 'fail'}"
    if not blame.now:
        title = f"{plain(blame.check)}: no host fails now; {number} did"
    return Sheet(
        title=title,
        kind="blame",
        blocks=tuple(_group(group, clock) for group in blame.groups),
        end=" ".join((*_always_text(blame.always, clock), *_unread_text(blame.unread))),
    )


def _group(group: DriftGroup, clock: Clock) -> TableBlock:
    number = len(group.looks)
    since = clock.moment_and_age(group.bad.at)
    title = f"{count(number, 'host')} since {since}: {nodeset(group.hosts)}"
    rows = tuple(_row(line, group) for line in group.changes)
    note = " ".join(_notes(group, clock))
    if clear := group.clear:
        note = f"{_sentence(clear, group)} {note}"
    heads = ("on", "others", "what changed", "from", "to") if rows else ()
    return TableBlock(title=title, heads=heads, rows=rows, note=note.strip())


def _row(line: ChangeLine, group: DriftGroup) -> tuple[Cell, ...]:
    sole = group.is_sole(line) and not line.own
    what = path_text(line.path) + (" (what the check reads)" if line.own else "")
    return (
        Cell(_share(len(line.drifted), len(group.looks)), right=True),
        Cell(_share(line.others, group.others), right=True),
        Cell(what, "quiet" if line.own else "fail" if sole else ""),
        Cell(json_text(line.before)),
        Cell(_after_text(line)),
    )


def _share(number: int, total: int) -> str:
    if number == total:
        return f"all {total:,}" if total else "-"
    return f"{number:,} of {total:,}" if number else f"none of {total:,}"


def _after_text(line: ChangeLine) -> str:
    if line.after:
        return json_text(line.after)
    if line.before:
        return "gone"
    return UNTOLD.get(line.path, "differs from host to host")


def path_text(path: str) -> str:
    """`package tuned`, `kernel`; else the path itself."""
    if path in KNOWN:
        return KNOWN[path]
    if match := _PACKAGE.fullmatch(path):
        return f"package {plain(match[1])}" + ("" if match[2] == "version" else f" {match[2]}")
    if match := _UNIT.fullmatch(path):
        return f"unit {plain(match[1])} {match[2]}"
    if match := _SYSCTL.fullmatch(path):
        return f"sysctl {plain(match[1])}"
    return brief(path, LONGEST)


def json_text(text: str) -> str:
    """A JSON value as people read it."""
    return brief(show(msgspec.json.decode(text)), LONGEST) if text else ""


def _sentence(line: ChangeLine, group: DriftGroup) -> str:
    """`All 3 and none of the other 15 got package tuned 2.24 in between.`"""
    value_text = json_text(line.after) or _after_text(line)
    text = (
        value_text
        if not line.after and line.path in UNTOLD
        else f"got {path_text(line.path)} {value_text}"
    )
    if len(group.looks) == 1:
        return f"It {text} in between; none of the other {group.others:,} did."
    return f"All {len(group.looks):,} and none of the other {group.others:,} {text} in between."


def _notes(group: DriftGroup, clock: Clock) -> Iterator[str]:
    """The limits of what this comparison can show."""
    yield f"Last seen good: {clock.moment_and_age(group.good.at)}."
    if group.days > LONG_DAYS:
        days = f"{group.days:.0f} days"
        yield f"Up to {days} lie between the two visits: much else may have happened meanwhile."
    if any(look.pruned for look in group.looks):
        yield "The evidence of nights in between was pruned."
    if group.rule:
        rules = ", ".join(map(plain, group.rule))
        yield f"The rule changed too: {rules}. The cause may be the rule, and not the hosts."
    if not group.others:
        yield "The two runs visited no other host, so there is nothing to compare with."
    elif not group.clear:
        yield "No other value changed on all of these hosts and on no other host."
    elif len(group.looks) == 1:
        yield "One host alone proves little."
    if group.more:
        yield f"{group.more:,} more values changed in the same way."


def _always_text(looks: Sequence[DriftLook], clock: Clock) -> Iterator[str]:
    if looks:
        since = clock.moment_and_age(min(look.bad.at for look in looks))
        hosts = nodeset([look.host for look in looks])
        yield f"No good visit to compare with, failed when first judged, {since}: {hosts}."


def _unread_text(looks: Sequence[DriftLook]) -> Iterator[str]:
    if looks:
        hosts = nodeset([look.host for look in looks])
        yield f"The evidence before or at the first failure was pruned: {hosts}."
