"""The scenarios that come with nodevet, and how one is found by name."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from nodevet.base.printable import brief
from nodevet.base.problems import Problem, did_you_mean
from nodevet.document.parse import parse
from nodevet.document.text import read
from nodevet.document.tree import Scalar
from nodevet_sim.scenario.errors import ScenarioError

ENDINGS = (".yaml", ".yml")


def folder() -> Path:
    """The folder of the shipped scenarios."""
    return Path(str(files("nodevet_sim").joinpath("scenarios")))


def shipped_scenarios() -> Iterator[tuple[str, str]]:
    """The name of each shipped scenario, and its title."""
    for path in sorted(folder().glob("*.yaml")):
        root = parse(read(path)).root
        entry = root.get("title") if root else None
        value = entry.value if entry else None
        yield path.stem, value.text if isinstance(value, Scalar) else ""


def find(name: str) -> Path:
    """A scenario's file: a path, or the name of a shipped one. Raises ScenarioError."""
    if "/" in name or name.endswith(ENDINGS) or Path(name).is_file():
        return Path(name)
    names = [path.stem for path in folder().glob("*.yaml")]
    if name not in names:
        advice = did_you_mean(
            name,
            names,
            f"shipped scenarios: {', '.join(sorted(names))}; or give the path of a file",
        )
        message = "there is no such scenario"
        raise ScenarioError([Problem(brief(name, 200), "", message, advice)])
    return folder() / f"{name}.yaml"
