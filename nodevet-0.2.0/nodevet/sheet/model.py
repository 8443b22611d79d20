"""The report model: a title and blocks, which every format renders without knowing the feature.

Texts are printable already. A renderer lays blocks out; it never chooses their content.
"""

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class Medium(enum.Flag):
    """The formats that show a block."""

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
    """The fields of every block."""

    title: str = ""
    media: Medium = Medium.ALL


class TextBlock(SheetBlock, frozen=True, kw_only=True):
    """A paragraph; commands in it are between backticks. `tone`: as in a `Cell`."""

    text: str
    tone: str = ""


class ProseBlock(SheetBlock, frozen=True, kw_only=True):
    """Markdown that an author of checks wrote, not a node: strong words, code, lists."""

    text: str


class FactBlock(SheetBlock, frozen=True, kw_only=True):
    """Labels, each with its value."""

    rows: tuple[tuple[str, str], ...]


class ListItem(NamedTuple):
    """One item of a list: a text, its explanation, a command to type."""

    text: str
    note: str = ""
    command: str = ""
    strong: bool = False


class ListBlock(SheetBlock, frozen=True, kw_only=True):
    """A list. A terminal shows `label` before each item instead of the title."""

    items: tuple[ListItem, ...]
    label: str = ""


class TableBlock(SheetBlock, frozen=True, kw_only=True):
    """Rows, with or without heads."""

    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    spare: tuple[int, ...] = ()  # columns that a narrow terminal leaves out, in this order


class ChartPoint(NamedTuple):
    """One measurement. `tone` and `text`: the point's own colour, and the reason for it."""

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
    tone: str = ""  # fail, unknown; "": the next colour


class ChartBlock(SheetBlock, frozen=True, kw_only=True):
    """Lines over the same points."""

    unit: str = ""
    axis: str = ""
    lines: tuple[ChartLine, ...]
    whole: bool = False  # counts: the axis begins at 0 and has whole numbers
    top: float | None = None  # the axis goes from 0 to this
    marks: tuple[tuple[float, str], ...] = ()  # places on the axis and their labels
    key: tuple[tuple[str, str], ...] = ()  # tones of points and their meanings


class TimeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One value over time. `points`: (seconds, value), in order of time."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    most: float | None = None  # the highest possible value


class TimeStrip(SheetBlock, frozen=True, kw_only=True):
    """Values of one unit that share a small chart."""

    unit: str
    lines: tuple[TimeLine, ...]


class TimeBlock(SheetBlock, frozen=True, kw_only=True):
    """Strips on one axis from 0 to `seconds`; their values begin at `later` on it."""

    strips: tuple[TimeStrip, ...]
    seconds: float
    later: float = 0.0


class CodeBlock(SheetBlock, frozen=True, kw_only=True):
    """Verbatim lines: a diff, a file. `language`: diff, text. `sides`: names of the `-` and the `+`
    lines of a diff; the second is the present state."""

    text: str
    language: str = "text"
    sides: tuple[str, str] = ("", "")
    loud: tuple[tuple[str, str], ...] = ()  # words to highlight in remarks, and their tones


class HostRow(NamedTuple):
    """One row about hosts. `hosts` are raw names, which a renderer folds."""

    cells: tuple[str, ...]
    hosts: tuple[str, ...]
    subjects: str = ""  # of the hosts: `GPU 4`, `56 GPUs`
    note: str = ""


class HostRowBlock(SheetBlock, frozen=True, kw_only=True):
    """Rows about hosts. `loud`: as in a `CodeBlock`."""

    rows: tuple[HostRow, ...]
    loud: tuple[tuple[str, str], ...] = ()


class Excerpt(NamedTuple):
    """A message about a place in a file. `line` is raw, and None if it is not known."""

    place: str  # site.yaml:4:9
    text: str
    note: str = ""
    mark: str = ""  # a word between the place and the text: warning
    number: int = 0  # of the line; 0: the file as a whole
    column: int = 0  # from 1
    line: str | None = None


class ExcerptBlock(SheetBlock, frozen=True, kw_only=True):
    """Places in files, each with its line."""

    rows: tuple[Excerpt, ...]


class DifferenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One difference and every host that has it. `hosts` are raw names, which a renderer folds."""

    label: str  # FAIL
    tone: str = ""
    name: str = ""  # of the check; "" for a difference of hosts
    text: str  # the difference
    hosts: tuple[str, ...]
    parts: str = ""  # of the hosts: `GPU 4`, `40 GPUs`
    named: bool = False  # `parts` are named, not counted
    new: str = ""  # `NEW`, `NEW: 3 of 4`
    level: str = ""  # `warning`
    since: str = ""
    note: str = ""
    advice: tuple[str, ...] = ()
    needs: str = ""  # what repairs it, in words: `needs a reboot`
    command: str = ""  # explains it
    names: tuple[str, ...] = ()  # of every check that it concerns


class DifferenceBlock(SheetBlock, frozen=True, kw_only=True):
    """Differences, worst first. `whole`: a terminal shows advice in full. `folded`: as a group."""

    rows: tuple[DifferenceRow, ...]
    heads: tuple[str, str, str] = ("verdict", "check", "difference")
    whole: bool = False
    note: str = ""
    folded: bool = False


class MatrixColumn(NamedTuple):
    """A column. `fine`: nothing in it is wrong, so a page hides it at first."""

    name: str
    fine: bool = False


class MatrixEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finding of one column about rows. A cell shows the entry with the highest `rank`."""

    column: int
    word: str  # fail
    tone: str
    rank: int
    level: str = ""  # warning
    label: str = ""  # `GPU 0-7`
    text: str = ""  # in a few words
    note: str = ""
    origin: str = ""
    blocks: "tuple[AnyBlock, ...]" = ()  # its details
    data: Mapping[str, Any] = {}  # for programs
    command: str = ""  # explains it
    fine: bool = False  # nobody has to read it


class RowEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a row, with only the fields of this row. `parts`: label and details."""

    entry: int
    new: bool = False
    since: str = ""
    parts: tuple[tuple[str, str], ...] = ()


class MatrixRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row, which a page can open. `ids`: label and ids of its parts."""

    name: str
    word: str
    tone: str
    why: str = ""
    new: bool = False
    groups: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    ids: tuple[tuple[str, str], ...] = ()
    entries: tuple[RowEntry, ...] = ()
    data: Mapping[str, Any] = {}


class MatrixBlock(SheetBlock, frozen=True, kw_only=True):
    """Rows, worst first, and columns, with one or more entries in each cell. `fine`: the text that
    replaces fine columns. `compared`: entries may be new. `legend`: tones and their meanings.
    `heads`: the names of a column, of the word of an entry, and of the worst entry of a row."""

    columns: tuple[MatrixColumn, ...]
    entries: tuple[MatrixEntry, ...]
    rows: tuple[MatrixRow, ...]
    outcomes: tuple[tuple[str, str, int], ...]  # word, tone, how many rows; worst first
    fine: str = ""
    compared: bool = False
    heads: tuple[str, str, str] = ("Check", "Verdict", "Worst finding")
    legend: tuple[tuple[str, str], ...] = ()


class GroupBlock(SheetBlock, frozen=True, kw_only=True):
    """Blocks about one thing: a host, a GPU. `folded`: a page hides them at first."""

    tag: Cell | None = None
    note: str = ""
    blocks: "tuple[AnyBlock, ...]"
    anchor: str = ""
    folded: bool = False
    hosts: tuple[str, ...] = ()  # raw names, counted if a document has no room for the group


AnyBlock = (
    TextBlock
    | ProseBlock
    | FactBlock
    | ListBlock
    | TableBlock
    | ChartBlock
    | TimeBlock
    | CodeBlock
    | HostRowBlock
    | ExcerptBlock
    | DifferenceBlock
    | MatrixBlock
    | GroupBlock
)


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a command shows."""

    title: str
    kind: str  # the command
    media: Medium = Medium.ALL  # where the title and the facts are shown
    facts: tuple[str, ...] = ()  # one line below the title
    blocks: tuple[AnyBlock, ...] = ()
    end: str = ""  # the last line
    more: str = "more"  # the name of groups that are left out: `more hosts`
