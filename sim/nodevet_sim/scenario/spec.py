"""A node's part of the scenario, before it is described, and its places."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nodevet.base.problems import Place, Problem
from nodevet_sim.description import LogLine
from nodevet_sim.faults import FaultError
from nodevet_sim.scenario.errors import ScenarioError
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.state import StateError

WHOLE = Place()
NodeKeys = dict[str, object]  # the plain keys of a node, its template's among them


@dataclass(frozen=True)
class Origin:
    """A position in a file, or what a person typed."""

    file: str
    place: Place = WHOLE

    def problem(self, path: str, text: str) -> Problem:
        message, _, advice = text.partition("; ")
        return Problem(self.place.within(self.file), path, message, advice)


@dataclass(frozen=True)
class NodeSpec:
    """One node. `said` and `part` have the same content, as plain and as typed data."""

    name: str
    part: NodePart
    said: NodeKeys
    folder: Path  # that its paths start from
    where: Mapping[str, Origin]  # key, `faults[0]`, or "" for the node -> position
    events: tuple[LogLine | int, ...] = ()  # log lines, and faults by place, since it runs

    @contextmanager
    def blame(self, key: str) -> Iterator[None]:
        """What goes wrong here is wrong with this key. Raises ScenarioError."""
        try:
            yield
        except (StateError, FaultError) as error:
            raise self.error(key, str(error)) from error

    def error(self, key: str, text: str) -> ScenarioError:
        """`what is wrong; what to do` at the position of a key."""
        where = self.where.get(key) or self.where.get(key.partition("[")[0]) or self.where[""]
        path = f"{self.name}.{key}" if key else self.name
        return ScenarioError([where.problem(path, text)])

    def path(self, text: str) -> Path:
        """A path of the scenario, from its folder."""
        return self.folder / text


@dataclass(frozen=True)
class LoadedScenario:
    """A scenario that was read. `files` are all that were, itself first."""

    name: str
    title: str
    nodes: Mapping[str, NodeSpec] = field(default_factory=dict)
