"""Compare: hosts held against one another, as text."""

from collections.abc import Iterator

import msgspec

from nodevet.catalog import Catalog
from nodevet.learning.compare import ComparedGroup, Comparison, Odd, compare
from nodevet.learning.text import flow
from nodevet.model import Value
from nodevet.printable import plain
from nodevet.run.nodes import Nodes
from nodevet.sheet.text import count, name, nodeset, wrap

WIDTH = 200
NONE = "not said"


def compared(nodes: Nodes, catalog: Catalog) -> Comparison:
    """Each group of like hosts. Raises CatalogError for a check that is broken."""
    return compare(nodes.evidence, catalog, nodes.lost)


def as_json(comparison: Comparison) -> str:
    """Everything, and the names of the outliers."""
    whole = msgspec.to_builtins(comparison) | {"outliers": list(comparison.outliers)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1).decode()


def as_nodeset(comparison: Comparison) -> str:
    """The outliers for `srun --exclude`; an empty line if there are none."""
    return nodeset(comparison.outliers)


def as_table(comparison: Comparison, *, width: int | None = None) -> str:
    """For people, one paragraph for each group."""
    return "\n".join(_lines(comparison, width or WIDTH))


def _lines(comparison: Comparison, width: int) -> Iterator[str]:
    for group in comparison.groups:
        yield from _group(group, width)
        yield ""
    for host, why in comparison.lost.items():
        yield f"{name(host)}: not compared: {plain(why)}"
    if comparison.lost:
        yield ""
    yield _closing(comparison)


def _group(group: ComparedGroup, width: int) -> Iterator[str]:
    hosts = nodeset(group.hosts)
    what = plain(group.what)
    if len(group.hosts) == 1:
        yield f"{hosts}: {what}: no other host is of that hardware"
        return
    yield f"{hosts}: {count(len(group.hosts), 'host')} of like hardware: {what}"
    rows = [[one.check, _told(one, len(group.hosts))] for one in group.odd]
    first = max((len(check) for check, _ in rows), default=0)
    for check, told in rows:
        head, *rest = wrap(told, max(20, width - first - 4))
        yield f"  {check:{first}}  {head}"
        yield from (f"  {'':{first}}  {line}" for line in rest)
    yield f"  the same on all: {count(len(group.alike), 'check')}"


def _told(odd: Odd, hosts: int) -> str:
    """`performance on 6 of 8; powersave on gpu[003,007]`."""
    field = f"{odd.field}: " if odd.field else ""
    if odd.subject:
        ((found, where),) = odd.values
        wanted = f", expected {plain(str(odd.expected))}" if odd.expected is not None else ""
        label = "" if odd.subject == "node" else f" {odd.subject}"
        effects = f", with {count(odd.effects, 'finding')} more" if odd.effects else ""
        return f"{nodeset(where)}{label}: {plain(str(found))}{wanted}{effects}"
    others = odd.values[1:] if odd.agreeing else odd.values
    said = [f"{_value(value)} on {nodeset(where)}" for value, where in others]
    if odd.agreeing:
        said.insert(0, f"{_value(odd.expected)} on {odd.agreeing} of {hosts}")
    return field + ("" if odd.agreeing else "no majority: ") + "; ".join(said)


def _value(value: Value) -> str:
    return NONE if value is None else plain(flow(value))


def _closing(comparison: Comparison) -> str:
    compared = sum(len(group.hosts) for group in comparison.groups if len(group.hosts) > 1)
    if not compared:
        return "nothing to compare: it takes two hosts of like hardware"
    outliers = comparison.outliers
    said = f"{count(compared, 'host')} compared"
    if outliers:
        return f"{said}, {count(len(outliers), 'outlier')}: {nodeset(outliers)}"
    if any(group.split for group in comparison.groups):
        return f"{said}: they differ, and there is no majority"
    return f"{said}, all alike"
