"""A scenario's YAML as node specifications; docs/simulation.md describes the format."""

import json
from collections.abc import Iterator
from pathlib import Path

from nodevet.base.nodeset import NodesetError, expand
from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem, did_you_mean, quoted
from nodevet.document.parse import parse
from nodevet.document.text import Source, UnreadableError, read
from nodevet.document.tree import Entry, Mapping, Node, Scalar, Sequence, dotted, join, plain
from nodevet_sim.description import Scenario
from nodevet_sim.scenario.describe import describe
from nodevet_sim.scenario.errors import ScenarioError
from nodevet_sim.scenario.format import FIELDS, NAME, VERSION, NodePart
from nodevet_sim.scenario.hardware import cpus_of
from nodevet_sim.scenario.spec import LoadedScenario, NodeKeys, NodeSpec, Origin
from nodevet_sim.scenario.validate import MERGED, spelled, wrong

TOP = ("sim", "name", "title", "templates", "nodes")
MOST_NODES = 250
MOST_CPUS = 65_536  # of all nodes: every CPU costs forty files


def load(path: Path) -> LoadedScenario:
    """The nodes of a scenario. Raises ScenarioError with every problem that was found."""
    try:
        source = read(path)
    except UnreadableError as error:
        raise ScenarioError([error.problem]) from error
    reader = _ScenarioReader(source)
    loaded = reader.document()
    if reader.problems:
        raise ScenarioError(sorted(reader.problems, key=lambda one: one.place))
    _try(loaded)
    return loaded


def load_scenario(path: Path) -> Scenario:
    """The scenario with its nodes described. Raises ScenarioError."""
    loaded = load(path)
    return Scenario(loaded.name, tuple(describe(spec) for spec in loaded.nodes.values()))


def _try(loaded: LoadedScenario) -> None:
    """Describe one node of each kind, so that a scenario that loads can be booted."""
    problems: list[Problem] = []
    one_of_each = {id(spec.part): spec for spec in loaded.nodes.values()}
    for spec in one_of_each.values():
        try:
            describe(spec)
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(sorted(problems, key=lambda one: one.place))


class _ScenarioReader:
    """Walks the document once and collects nodes and problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.templates: dict[str, tuple[NodeKeys, dict[str, Origin]]] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.cpus = 0

    def document(self) -> LoadedScenario:
        tree = parse(self.source)
        for problem in tree.problems:
            advice = problem.advice.replace("nodevet: 1", f"sim: {VERSION}")
            self.tell(problem.place, problem.path, problem.message, advice)
        if tree.root is None:
            raise ScenarioError(self.problems)
        keys = self.keys(tree.root, "", TOP)
        self.version(keys.get("sim"))
        name = self.word(keys.get("name")) or self.source.path.stem
        if not NAME.fullmatch(name):
            place = keys["name"].value.place if "name" in keys else Place()
            advice = "use letters, digits and '-'; `name:` overrides the name of the file"
            self.tell(place, "name", f"{quoted(name)} is not a valid fleet name", advice)
        for entry in self.mapping(keys.get("templates"), "templates"):
            self.templates[entry.key] = self.body(entry.value, join("templates", entry.key))
        if "nodes" not in keys:
            self.tell(Place(1, 1), "nodes", "`nodes` is missing", "add: nodes: {gpu001: ...}")
        for entry in self.mapping(keys.get("nodes"), "nodes"):
            self.node(entry)
        return LoadedScenario(name, self.word(keys.get("title")), self.nodes)

    def version(self, entry: Entry | None) -> None:
        if entry is None:
            self.tell(
                Place(1, 1),
                "sim",
                "the format version is missing",
                f"begin with the line: sim: {VERSION}",
            )
        elif plain(entry.value) is not VERSION:
            self.tell(
                entry.value.place,
                "sim",
                f"this nodevet reads format version {VERSION}",
                f"write sim: {VERSION}",
            )

    def word(self, entry: Entry | None) -> str:
        """The text of a key; nothing if it is missing."""
        if entry is None:
            return ""
        value = entry.value
        if isinstance(value, Scalar) and isinstance(value.value, str):
            return value.value
        self.tell(value.place, entry.key, "must be text", "")
        return ""

    def node(self, entry: Entry) -> None:
        path = join("nodes", entry.key)
        said, where = self.body(entry.value, path)
        where[""] = self.origin(entry.place)
        template = said.get("template")
        if isinstance(template, str):
            if template not in self.templates:
                there = ", ".join(map(brief, self.templates)) or "none"
                advice = did_you_mean(template, self.templates, f"choose one of: {there}")
                text = f"there is no template {quoted(template)}"
                self.tell(where["template"].place, f"{path}.template", text, advice)
                return
            said, where = merged(self.templates[template], (said, where))
        try:
            names = expand(entry.key, MOST_NODES)
        except NodesetError as error:
            self.tell(entry.place, path, str(error), "")
            return
        if self.problems:
            return
        part = NodePart.model_validate_json(json.dumps(said))
        self.cpus += cpus_of(part) * len(names)
        for name in names:
            self.add(NodeSpec(name, part, said, self.source.path.parent, where), entry.place)
        if self.cpus > MOST_CPUS:
            advice = "give the nodes fewer cores"
            self.tell(entry.place, path, f"more than {MOST_CPUS:,} CPUs in all nodes", advice)

    def add(self, spec: NodeSpec, place: Place) -> None:
        if not NAME.fullmatch(spec.name):
            text = f"{quoted(spec.name)} is not a valid name for a simulated node"
            self.tell(place, "nodes", text, "use letters, digits, '-' and '.', at most 63")
        elif spec.name in self.nodes:
            known = self.nodes[spec.name].where[""].place
            text = f"{spec.name} is described twice, first on line {known.line}"
            self.tell(place, "nodes", text, "keep one of the two")
        elif len(self.nodes) >= MOST_NODES:
            raise ScenarioError([self.problem(place, "nodes", f"more than {MOST_NODES} nodes", "")])
        else:
            self.nodes[spec.name] = spec

    def body(self, node: Node, path: str) -> tuple[NodeKeys, dict[str, Origin]]:
        """The keys of a node or a template, validated separately, and their places."""
        if isinstance(node, Scalar) and node.value is None:
            return {}, {}
        if not isinstance(node, Mapping):
            advice = f"write keys with values; known here: {', '.join(FIELDS)}"
            self.tell(node.place, path, "expected keys with values", advice)
            return {}, {}
        said = spelled(node)
        for problem in wrong(node):
            inner = f"{path}.{dotted(problem.path)}" if problem.path else path
            self.tell(problem.place, inner, problem.message, problem.advice)
        if path.startswith("templates") and "template" in said:
            self.tell(node.place, path, "a template cannot have a template", "write it out")
        return said, {key: self.origin(place) for key, place in _places(node)}

    def keys(self, node: Mapping, path: str, known: tuple[str, ...]) -> dict[str, Entry]:
        for entry in node.entries:
            if entry.key not in known:
                advice = did_you_mean(entry.key, known, f"known here: {', '.join(known)}")
                self.tell(entry.place, join(path, entry.key), "unknown key", advice)
        return {entry.key: entry for entry in node.entries}

    def mapping(self, entry: Entry | None, path: str) -> Iterator[Entry]:
        if entry is None:
            return
        if isinstance(entry.value, Mapping):
            yield from entry.value.entries
        else:
            self.tell(entry.value.place, path, "expected names with keys", "")

    def origin(self, place: Place) -> Origin:
        return Origin(self.source.shown, place)

    def tell(self, place: Place, path: str, text: str, advice: str) -> None:
        self.problems.append(self.problem(place, path, text, advice))

    def problem(self, place: Place, path: str, text: str, advice: str) -> Problem:
        return Problem(place.within(self.source.shown), path, text, advice)


def merged(
    template: tuple[NodeKeys, dict[str, Origin]], own: tuple[NodeKeys, dict[str, Origin]]
) -> tuple[NodeKeys, dict[str, Origin]]:
    """A node on top of its template: its keys win, `nvml` and `files` key by key."""
    said, where = {**template[0], **own[0]}, {**template[1], **own[1]}
    for key in MERGED:
        below, above = template[0].get(key), own[0].get(key)
        if isinstance(below, dict) and isinstance(above, dict):
            said[key] = {**below, **above}
    return said, where


def _places(node: Mapping) -> Iterator[tuple[str, Place]]:
    """The position of every key, and of every item of a list."""
    for entry in node.entries:
        yield entry.key, entry.place
        if isinstance(entry.value, Sequence):
            for place, item in enumerate(entry.value.items):
                yield f"{entry.key}[{place}]", item.place
