"""The trend of a check or of a field, as a sheet with a chart. Pure."""

from collections.abc import Sequence

from nodevet.base.printable import brief, plain
from nodevet.past.sheets.parts import at_text, fold, short
from nodevet.past.trend import CheckPoint, CheckTrend, FieldPoint, FieldTrend
from nodevet.sheet.chart import number_of
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, ChartBlock, ChartLine, ChartPoint, Sheet, TableBlock
from nodevet.sheet.text import count, name, nodeset

Part = tuple[str, tuple[float | None, ...]]
"""The name of a part, or of several alike, and its value in each run."""
MOST_LINES = 16  # of one chart
MOST_OF_A_NAME = 48  # columns


def check_sheet(trend: CheckTrend, clock: Clock) -> Sheet:
    """The number of hosts that fail a check, run by run."""
    failing = tuple(
        _counted(point, point.failing, len(point.unread), clock) for point in trend.points
    )
    lines = [ChartLine(name="fail", points=failing, tone="fail")]
    if any(point.unknown for point in trend.points):
        unknown = tuple(_counted(point, point.unknown, 0, clock) for point in trend.points)
        lines.append(ChartLine(name="unknown", points=unknown, tone="unknown"))
    unread = any(point.unread for point in trend.points)
    rows = tuple(
        (
            Cell(clock.moment_and_age(point.started)),
            Cell(f"{point.failing:,}", "fail" if point.failing else "ok", right=True),
            Cell(f"{point.unknown:,}", "unknown" if point.unknown else "quiet", right=True),
            Cell(f"{point.judged:,}", right=True),
            Cell(nodeset(point.hosts) if point.hosts else ""),
            *((Cell(nodeset(point.unread) if point.unread else "", "unreached"),) * unread),
        )
        for point in trend.points
    )
    heads = ("run", "fail", "unknown", "vetted", "hosts that fail", *(["not judged"] * unread))
    last = trend.points[-1]
    return Sheet(
        title=f"{plain(trend.check)}: {count(last.failing, 'host')} of {last.judged:,} fail",
        kind="trend",
        facts=tuple(filter(None, (plain(trend.title), count(len(trend.points), "run")))),
        blocks=(
            ChartBlock(title="Hosts that fail", unit="", lines=tuple(lines), whole=True),
            TableBlock(heads=heads, rows=rows),
        ),
    )


def _counted(point: CheckPoint, number: int, unread: int, clock: Clock) -> ChartPoint:
    """A gap if hosts that failed were not visited, or if none was judged; `unread`: hosts that may
    fail still."""
    value = float(number) if point.is_comparable else None
    most = None if value is None else value + unread
    return ChartPoint(at_text(point.started, clock), value, value, most)


def field_sheet(trend: FieldTrend, clock: Clock) -> Sheet:
    """The values of a field, run by run."""
    of = f" of {name(trend.host)}" if trend.host else ""
    title = f"{plain(trend.field)}{of}" + (f", {trend.unit}" if trend.unit else "")
    facts = (count(len(trend.points), "run"),)
    if any(point.values for point in trend.points):
        return Sheet(title=title, kind="trend", facts=facts, blocks=(_words(trend, clock),))
    end = ""
    if parts := fold((part.name, part.values) for part in trend.series):
        labels = [at_text(point.started, clock) for point in trend.points]
        blocks = _parts_chart(parts, labels, trend.unit), _parts_table(parts, labels)
        if len(parts) > MOST_LINES:
            end = f"the chart has the first {MOST_LINES} of {len(parts)}"
    else:
        blocks = _range_chart(trend, clock), _range_table(trend, clock)
    return Sheet(title=title, kind="trend", facts=facts, blocks=blocks, end=end)


def _range_chart(trend: FieldTrend, clock: Clock) -> ChartBlock:
    points = tuple(
        ChartPoint(at_text(p.started, clock), p.least, None if p.partial else p.median, p.most)
        for p in trend.points
    )
    line = ChartLine(name="median, from the least to the most", points=points)
    return ChartBlock(title="All hosts", unit=trend.unit, lines=(line,))


def _range_table(trend: FieldTrend, clock: Clock) -> TableBlock:
    rows = tuple(
        (
            Cell(clock.moment_and_age(point.started)),
            _number(point.least),
            _number(point.median),
            _number(point.most),
            Cell(f"{point.count:,}", right=True),
        )
        for point in trend.points
    )
    return TableBlock(heads=("run", "least", "median", "most", "values"), rows=rows)


def _parts_chart(parts: Sequence[Part], labels: Sequence[str], unit: str) -> ChartBlock:
    lines = tuple(
        ChartLine(
            name=_name(part),
            points=tuple(
                ChartPoint(label, None, value, None)
                for label, value in zip(labels, values, strict=True)
            ),
        )
        for part, values in parts[:MOST_LINES]
    )
    return ChartBlock(title="Each part", unit=unit, lines=lines)


def _parts_table(parts: Sequence[Part], labels: Sequence[str]) -> TableBlock:
    rows = tuple((Cell(_name(part)), *map(_number, values)) for part, values in parts)
    return TableBlock(heads=("", *labels), rows=rows)


def _number(value: float | None) -> Cell:
    return Cell("" if value is None else number_of(value), right=True)


def _name(part: str) -> str:
    return brief(" ".join(map(short, part.split())), MOST_OF_A_NAME) or "value"


def _words(trend: FieldTrend, clock: Clock) -> TableBlock:
    """The values of a field, and how often each was read."""

    def counts(point: FieldPoint) -> str:
        return ", ".join(f"{plain(value)}: {number:,}" for value, number in point.values.items())

    rows = tuple(
        (
            Cell(clock.moment_and_age(point.started)),
            Cell(f"{point.count:,}", right=True),
            Cell(counts(point)),
        )
        for point in trend.points
    )
    return TableBlock(heads=("run", "values", "which"), rows=rows)
