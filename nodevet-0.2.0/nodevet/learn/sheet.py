"""A comparison of hosts as a sheet. Pure."""

from nodevet.base.printable import plain
from nodevet.document.flow import flow
from nodevet.learn.compare import ComparedGroup, Comparison, Odd
from nodevet.model import Value
from nodevet.sheet.model import FactBlock, GroupBlock, Sheet, TextBlock
from nodevet.sheet.text import count, name, nodeset

UNREAD = "not said"


def comparison_sheet(comparison: Comparison) -> Sheet:
    """A group for each kind of hardware, then the hosts that could not be read."""
    lost = (
        TextBlock(text=f"{name(host)}: not compared: {plain(why)}")
        for host, why in comparison.lost.items()
    )
    return Sheet(
        title=_outcome(comparison),
        kind="compare",
        blocks=(*map(_group, comparison.groups), *lost),
        end=f"outliers: {nodeset(comparison.outliers)}" if comparison.outliers else "",
        more="more groups",
    )


def _group(group: ComparedGroup) -> GroupBlock:
    hosts, what = nodeset(group.hosts), plain(group.what)
    if len(group.hosts) == 1:
        note = f"{what}: no other host has that hardware"
        return GroupBlock(title=hosts, note=note, blocks=())
    return GroupBlock(
        title=hosts,
        note=f"{count(len(group.hosts), 'host')} with similar hardware: {what}",
        blocks=(
            FactBlock(
                rows=tuple((odd.check, _odd_text(odd, len(group.hosts))) for odd in group.odd)
            ),
            TextBlock(text=f"the same on all: {count(len(group.alike), 'check')}"),
        ),
    )


def _odd_text(odd: Odd, hosts: int) -> str:
    """`performance on 6 of 8; powersave on gpu[003,007]`."""
    field = f"{odd.field}: " if odd.field else ""
    if odd.subject:
        ((actual, hosts_with),) = odd.values
        expected = f", expected {plain(str(odd.expected))}" if odd.expected is not None else ""
        label = "" if odd.subject == "node" else f" {odd.subject}"
        effects = f", with {count(odd.effects, 'finding')} more" if odd.effects else ""
        return f"{nodeset(hosts_with)}{label}: {plain(str(actual))}{expected}{effects}"
    others = odd.values[1:] if odd.agreeing else odd.values
    parts = [f"{_value(value)} on {nodeset(hosts_with)}" for value, hosts_with in others]
    if odd.agreeing:
        parts.insert(0, f"{_value(odd.expected)} on {odd.agreeing} of {hosts}")
    return field + ("" if odd.agreeing else "no majority: ") + "; ".join(parts)


def _value(value: Value) -> str:
    return UNREAD if value is None else plain(flow(value))


def _outcome(comparison: Comparison) -> str:
    compared = sum(len(group.hosts) for group in comparison.groups if len(group.hosts) > 1)
    if not compared:
        return "nothing to compare: this needs two hosts with similar hardware"
    outliers = comparison.outliers
    total = f"{count(compared, 'host')} compared"
    if outliers:
        return f"{total}, {count(len(outliers), 'outlier')}"
    if any(group.split for group in comparison.groups):
        return f"{total}: they differ, without a majority"
    return f"{total}, all alike"
