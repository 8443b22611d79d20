"""How something went from run to run, as a sheet with a chart. Pure."""

from nodevet.base.printable import brief, plain
from nodevet.past.sheets.runs import short
from nodevet.past.trend import CheckPoint, CheckTrend, FieldPoint, FieldTrend, PartSeries
from nodevet.sheet.chart import number_of
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, ChartBlock, ChartLine, ChartPoint, Sheet, TableBlock
from nodevet.sheet.text import count, name, nodeset

MOST_LINES = 16  # of one chart
MOST_OF_A_NAME = 48  # columns


def check_sheet(found: CheckTrend, clock: Clock) -> Sheet:
    """On how many hosts a check fails, run by run."""
    failing = tuple(
        _counted(point, point.failing, len(point.unread), clock) for point in found.points
    )
    lines = [ChartLine(name="fail", points=failing, tone="fail")]
    if any(point.unknown for point in found.points):
        unknown = tuple(_counted(point, point.unknown, 0, clock) for point in found.points)
        lines.append(ChartLine(name="unknown", points=unknown, tone="unknown"))
    unread = any(point.unread for point in found.points)
    rows = tuple(
        (
            Cell(clock.both(point.started)),
            Cell(f"{point.failing:,}", "fail" if point.failing else "ok", right=True),
            Cell(f"{point.unknown:,}", "unknown" if point.unknown else "quiet", right=True),
            Cell(f"{point.judged:,}", right=True),
            Cell(nodeset(point.hosts) if point.hosts else ""),
            *((Cell(nodeset(point.unread) if point.unread else "", "unreached"),) * unread),
        )
        for point in found.points
    )
    heads = ("run", "fail", "unknown", "vetted", "hosts that fail", *(["not judged"] * unread))
    last = found.points[-1]
    return Sheet(
        title=f"{plain(found.check)}: {count(last.failing, 'host')} of {last.judged:,} fail",
        kind="trend",
        facts=tuple(filter(None, (plain(found.title), count(len(found.points), "run")))),
        blocks=(
            ChartBlock(title="Hosts that fail", unit="", lines=tuple(lines), whole=True),
            TableBlock(heads=heads, rows=rows),
        ),
    )


def _counted(point: CheckPoint, number: int, unread: int, clock: Clock) -> ChartPoint:
    """A gap where hosts that failed were not visited, or none was judged; `unread`: hosts that may
    fail still."""
    value = float(number) if point.known else None
    most = None if value is None else value + unread
    return ChartPoint(_label(point.started, clock), value, value, most)


def _label(at: str, clock: Clock) -> str:
    return " ".join(clock.at(at).split())


def field_sheet(found: FieldTrend, clock: Clock) -> Sheet:
    """What a field was, run by run."""
    of = f" of {name(found.host)}" if found.host else ""
    title = f"{plain(found.field)}{of}" + (f", {found.unit}" if found.unit else "")
    facts = (count(len(found.points), "run"),)
    if any(point.values for point in found.points):
        return Sheet(title=title, kind="trend", facts=facts, blocks=(_words(found, clock),))
    chart = _parts_chart(found, clock) if found.series else _range_chart(found, clock)
    table = _parts_table(found, clock) if found.series else _range_table(found, clock)
    left = len(found.series) - MOST_LINES
    end = f"the chart has the first {MOST_LINES} of {len(found.series)}" if left > 0 else ""
    return Sheet(title=title, kind="trend", facts=facts, blocks=(chart, table), end=end)


def _range_chart(found: FieldTrend, clock: Clock) -> ChartBlock:
    points = tuple(
        ChartPoint(_label(p.started, clock), p.least, None if p.partial else p.median, p.most)
        for p in found.points
    )
    line = ChartLine(name="median, from the least to the most", points=points)
    return ChartBlock(title="All hosts", unit=found.unit, lines=(line,))


def _range_table(found: FieldTrend, clock: Clock) -> TableBlock:
    def number(value: float | None) -> Cell:
        return Cell("" if value is None else number_of(value), right=True)

    rows = tuple(
        (
            Cell(clock.both(point.started)),
            number(point.least),
            number(point.median),
            number(point.most),
            Cell(f"{point.count:,}", right=True),
        )
        for point in found.points
    )
    return TableBlock(heads=("run", "least", "median", "most", "values"), rows=rows)


def _parts_chart(found: FieldTrend, clock: Clock) -> ChartBlock:
    labels = [_label(point.started, clock) for point in found.points]
    lines = tuple(
        ChartLine(
            name=_name(each),
            points=tuple(
                ChartPoint(label, None, value, None)
                for label, value in zip(labels, each.values, strict=True)
            ),
        )
        for each in found.series[:MOST_LINES]
    )
    return ChartBlock(title="Each part", unit=found.unit, lines=lines)


def _parts_table(found: FieldTrend, clock: Clock) -> TableBlock:
    def row(each: PartSeries) -> tuple[Cell, ...]:
        return (
            Cell(_name(each)),
            *(Cell("" if v is None else number_of(v), right=True) for v in each.values),
        )

    heads = ("", *(_label(point.started, clock) for point in found.points))
    return TableBlock(heads=heads, rows=tuple(map(row, found.series)))


def _name(part: PartSeries) -> str:
    return brief(" ".join(map(short, part.name.split())), MOST_OF_A_NAME) or "value"


def _words(found: FieldTrend, clock: Clock) -> TableBlock:
    """How often each value was read."""

    def told(point: FieldPoint) -> str:
        return ", ".join(f"{plain(value)}: {number:,}" for value, number in point.values.items())

    rows = tuple(
        (Cell(clock.both(point.started)), Cell(f"{point.count:,}", right=True), Cell(told(point)))
        for point in found.points
    )
    return TableBlock(heads=("run", "values", "which"), rows=rows)
