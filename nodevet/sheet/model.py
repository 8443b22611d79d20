"""The report model: a title and blocks, which every format renders without knowing the feature.

Texts are printable already. A renderer lays blocks out; it never decides what they say.
"""

import enum
from typing import NamedTuple

import msgspec


class Medium(enum.Flag):
    """Where a block is shown."""

    TERMINAL = enum.auto()
    MARKDOWN = enum.auto()
    PAGE = enum.auto()
    DOCUMENT = MARKDOWN | PAGE
    ALL = TERMINAL | DOCUMENT


class Cell(NamedTuple):
    """One cell of a table. `tone`: ok, fail, warning, unknown, unreached, waived, quiet."""

    text: str
    tone: str = ""
    right: bool = False  # a number
    link: str = ""  # the `anchor` of a group


class SheetBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What every block has."""

    title: str = ""
    media: Medium = Medium.ALL


class TextBlock(SheetBlock, frozen=True, kw_only=True):
    """A paragraph; a command in it stands between backticks. `tone` as that of a `Cell`."""

    text: str
    tone: str = ""


class FactBlock(SheetBlock, frozen=True, kw_only=True):
    """Labels, each with its value."""

    rows: tuple[tuple[str, str], ...]


class ListItem(NamedTuple):
    """One item of a list: what it says, what explains it, what to type."""

    text: str
    note: str = ""
    command: str = ""
    strong: bool = False


class ListBlock(SheetBlock, frozen=True, kw_only=True):
    """Items under one another. `label` stands before each in a terminal, in place of the title."""

    items: tuple[ListItem, ...]
    label: str = ""


class TableBlock(SheetBlock, frozen=True, kw_only=True):
    """Rows under heads; without heads they explain themselves."""

    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    spare: tuple[int, ...] = ()  # columns that a narrow terminal leaves out, in this order


class ChartPoint(NamedTuple):
    """One measurement. `tone` and `text` are of this point alone: what it is, and why."""

    label: str
    least: float | None
    value: float | None
    most: float | None
    at: float | None = None  # its place on the axis; None: points are evenly spaced
    tone: str = ""
    text: str = ""


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart, with a band from the least to the most if they differ."""

    name: str
    points: tuple[ChartPoint, ...]
    tone: str = ""  # fail, unknown; none: a colour of its own


class ChartBlock(SheetBlock, frozen=True, kw_only=True):
    """Lines over the same points."""

    unit: str = ""
    axis: str = ""
    lines: tuple[ChartLine, ...]
    whole: bool = False  # counts: the axis begins at 0 and has whole numbers
    top: float | None = None  # the axis goes from 0 to this
    marks: tuple[tuple[float, str], ...] = ()  # places on the axis, and what is there
    key: tuple[tuple[str, str], ...] = ()  # a tone of points, and what it means


class TimeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One value over time. `points`: (seconds, value), in order of time."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    most: float | None = None  # the highest that it could be


class TimeStrip(SheetBlock, frozen=True, kw_only=True):
    """Values that share one small chart: of one unit."""

    unit: str
    lines: tuple[TimeLine, ...]


class TimeBlock(SheetBlock, frozen=True, kw_only=True):
    """Strips under one another on one axis, from 0 to `seconds`; all begin at `later` on it."""

    strips: tuple[TimeStrip, ...]
    seconds: float
    later: float = 0.0


class CodeBlock(SheetBlock, frozen=True, kw_only=True):
    """Lines as they are: a diff, a file. `language`: diff, text."""

    text: str
    language: str = "text"


class GroupBlock(SheetBlock, frozen=True, kw_only=True):
    """Blocks about one thing: a host, a GPU. `folded`: a page shows them once it is asked to."""

    tag: Cell | None = None
    note: str = ""
    blocks: "tuple[AnyBlock, ...]"
    anchor: str = ""
    folded: bool = False


AnyBlock = (
    TextBlock | FactBlock | ListBlock | TableBlock | ChartBlock | TimeBlock | CodeBlock | GroupBlock
)


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """All that a command shows."""

    title: str
    kind: str  # the command
    facts: tuple[str, ...] = ()  # one line below the title
    blocks: tuple[AnyBlock, ...] = ()
    end: str = ""  # the last line
    more: str = "more"  # what groups are that a document has no room for: `more hosts`
