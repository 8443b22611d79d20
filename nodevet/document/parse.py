"""Parse YAML text into a tree in which every key and value has its position.

libyaml yields the events; nodevet builds the tree, so that it can refuse constructs on which YAML
readers disagree. Nothing recurses, and aliases are shared, not copied, so that a hostile file costs
no more than its own size.
"""

import yaml

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import Place, Problem, did_you_mean
from nodevet.document.scalars import TrapError, resolve
from nodevet.document.text import Source
from nodevet.document.tree import Broken, Entry, Mapping, Node, Scalar, Sequence, Tree, join

MAX_DEPTH = 32
MAX_NODES = 20_000  # with every alias expanded


def parse(source: Source, max_nodes: int = MAX_NODES, *, loose: bool = False) -> Tree:
    """The one document in `source`. `loose`: a word on which YAML readers disagree is text, and a
    tag is not a problem; its value is broken, and has the tag."""
    builder = _Builder(source.shown, max_nodes, loose=loose)
    try:
        directive = _directive(source.text)
        if directive:
            builder.stop(directive, "a line that begins with % is not supported", "remove the line")
        for event in yaml.parse(source.text, Loader=yaml.CLoader):
            builder.take(event)
        builder.end()
    except _StopError:
        return Tree(None, tuple(builder.problems))
    except yaml.YAMLError as error:
        return Tree(None, (*builder.problems, _syntax(error, source)))
    root = builder.root
    return Tree(root if isinstance(root, Mapping) else None, tuple(builder.problems))


def _directive(text: str) -> Place | None:
    """The place of a %YAML or %TAG line before the document, or None."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("%"):
            return Place(number, 1)
        if line.strip() and not line.startswith("#"):
            break
    return None


class _StopError(Exception):
    """The rest of the file cannot be read; the problem is reported already."""


class _Frame:
    """An open mapping or sequence."""

    def __init__(self, place: Place, anchor: str | None, *, mapping: bool) -> None:
        self.place = place
        self.anchor = anchor
        self.mapping = mapping
        self.key: tuple[str, Place] | None = None  # the key whose value comes next
        self.skip = False  # the key is not usable, so its value is dropped
        self.entries: dict[str, Entry] = {}
        self.items: list[Node] = []
        self.weight = 1
        self.height = 1

    def node(self) -> Node:
        if self.mapping:
            return Mapping(place=self.place, entries=tuple(self.entries.values()))
        return Sequence(place=self.place, items=tuple(self.items))


class _Builder:
    """Builds the tree from events, and collects problems."""

    def __init__(self, file: str, max_nodes: int, *, loose: bool = False) -> None:
        self.file = file
        self.max_nodes = max_nodes
        self.loose = loose
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}  # node, weight, height
        self._documents = 0
        self._nodes = 0

    def take(self, event: yaml.Event) -> None:
        mark = event.start_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, place)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", place)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._count(1, place)
            self._refuse_tag(event.tag, place)
            if len(self._open) >= MAX_DEPTH:
                self.stop(place, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
            mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Frame(place, event.anchor, mapping=mapping))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            frame = self._open.pop()
            self._add(frame.node(), frame.weight, frame.height, frame.anchor)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self.stop(place, "a second document begins", "keep one document in one file")

    def end(self) -> None:
        """Judge the root. Raises _StopError like `stop`."""
        if self.root is None or (isinstance(self.root, Scalar) and self.root.value is None):
            self.stop(Place(1, 1), "the file is empty", "begin with the line: nodevet: 1")
        if isinstance(self.root, (Scalar, Sequence)):
            kind = "a list" if isinstance(self.root, Sequence) else "a single value"
            self.stop(
                self.root.place,
                f"the file holds {kind}, not keys with values",
                "begin with the line: nodevet: 1",
            )

    def stop(self, place: Place, message: str, advice: str) -> None:
        self.tell(place, message, advice)
        raise _StopError

    def tell(self, place: Place, message: str, advice: str) -> None:
        self.problems.append(Problem(place.within(self.file), self._path(), message, advice))

    def _path(self) -> str:
        path = ""
        for frame in self._open:
            if not frame.mapping:
                path = f"{path}[{len(frame.items)}]"
            elif frame.key is not None:
                path = join(path, frame.key[0])
        return path

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> None:
        self._count(1, place)
        tagged = self._refuse_tag(event.tag, place)
        text, unquoted = event.value, bool(event.implicit[0])
        if self._wants_key():
            self._key(text, place, unquoted)
            if event.anchor:
                self._anchors[event.anchor] = (Scalar(place=place, value=text, text=text), 1, 0)
            return
        node: Node
        try:
            node = Scalar(place=place, value=resolve(text) if unquoted else text, text=text)
        except TrapError as trap:
            if not self.loose:
                self.tell(place, sentence(trap.message), sentence(trap.advice))
            node = Scalar(place=place, value=text, text=text) if self.loose else Broken(place=place)
        if tagged:
            node = Broken(place=place, tag=event.tag or "", text=text)
        self._add(node, 1, 0, event.anchor)

    def _alias(self, anchor: str, place: Place) -> None:
        if any(frame.anchor == anchor for frame in self._open):
            self.stop(place, f"*{brief(anchor)} refers to itself", "write the value out")
        if anchor not in self._anchors:
            advice = f"define it with &{brief(anchor)} above, or put the text in quotes"
            near = did_you_mean(anchor, self._anchors, advice)
            self.stop(place, f"*{brief(anchor)} refers to nothing", near)
        node, weight, height = self._anchors[anchor]
        self._count(weight, place)
        if len(self._open) + height > MAX_DEPTH:
            self.stop(place, f"nested deeper than {MAX_DEPTH} levels", "write the value out")
        if self._wants_key() and isinstance(node, Scalar):
            self._key(node.text, place, unquoted=False)
        else:
            self._add(node, weight, height, None)

    def _wants_key(self) -> bool:
        frame = self._open[-1] if self._open else None
        return frame is not None and frame.mapping and frame.key is None and not frame.skip

    def _key(self, text: str, place: Place, unquoted: bool) -> None:
        frame = self._open[-1]
        if text == "<<" and unquoted:
            self.tell(place, "merge keys (<<) are not supported", "write the fields out")
            frame.skip = True
        elif unquoted and text in ("", "~"):
            self.tell(place, "a key is missing before the colon", "write key: value")
            frame.skip = True
        elif text in frame.entries:
            first = frame.entries[text].place.line
            frame.key = (text, place)
            self.tell(place, f"is given twice, first on line {first}", "keep one of the two")
            frame.key, frame.skip = None, True
        else:
            frame.key = (text, place)

    def _add(self, node: Node, weight: int, height: int, anchor: str | None) -> None:
        """Add a complete value to its collection."""
        if anchor:
            self._anchors[anchor] = (node, weight, height)
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        frame.weight += weight
        frame.height = max(frame.height, height + 1)
        if not frame.mapping:
            frame.items.append(node)
        elif frame.skip:
            frame.skip = False
        elif frame.key is None:
            self.tell(node.place, "a key must be text", "write key: value")
            frame.skip = True
        else:
            key, place = frame.key
            frame.entries[key] = Entry(key=key, place=place, value=node)
            frame.key = None

    def _count(self, weight: int, place: Place) -> None:
        self._nodes += weight
        if self._nodes > self.max_nodes:
            self.stop(
                place,
                f"more than {self.max_nodes:,} values, aliases written out",
                "write the values out, or split the file",
            )

    def _refuse_tag(self, tag: str | None, place: Place) -> bool:
        if tag is not None and not self.loose:
            self.tell(
                place,
                f"tags such as {brief(tag.replace('tag:yaml.org,2002:', '!!'))} are not read",
                "put text that begins with ! in quotes, and remove what is meant as a tag",
            )
        return tag is not None


def _syntax(error: yaml.YAMLError, source: Source) -> Problem:
    """libyaml's error as a problem with advice."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    lines = source.text.split("\n")
    if place.line > len(lines):  # libyaml adds a missing line end
        place = Place(len(lines), len(lines[-1]) + 1)
    line = lines[place.line - 1]
    word = line[place.column - 1 : place.column]
    reason = sentence(getattr(error, "problem", None) or "it cannot be read")
    if word == "\t" or "tab" in reason:
        message, advice = "YAML does not allow a tab here", "indent with spaces"
    else:
        message, advice = f"is not YAML: {reason}", _advice(reason, word)
    return Problem(place.within(source.shown), "", message, advice)


def _advice(reason: str, word: str) -> str:
    if word and word in "@`%":
        return f"put text that begins with {word} in quotes"
    if "expected comment or line break" in reason:
        return "put text that begins with > or | in quotes"
    for part, advice in (
        ("mapping values are not allowed", "put text that holds a colon and a space in quotes"),
        ("expected ',' or", "close the bracket, and put text that holds brackets in quotes"),
        ("could not find expected ':'", "write key: value, with a space after the colon"),
        ("unexpected end of stream", "close the quote"),
        ("escape", "use single quotes, or write the backslash twice"),
        ("expected key", "compare the indentation of this line with the one before"),
        ("'-' indicator", "compare the indentation of this line with the one before"),
    ):
        if part in reason:
            return advice
    return "look at this line and the one before"
