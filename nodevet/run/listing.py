"""What there is of each kind: found by folder, as everything that uses it finds it.

Importing this costs nothing; listing imports what it lists.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    """One thing by its name; `about` says more, if there is more to say."""

    name: str
    about: str = ""


def checks(project: Path) -> Iterator[Listed]:
    """Every check with its title."""
    from nodevet.run.context import open_project

    catalog, _ = open_project(project)
    yield from (Listed(name, catalog.title(name)) for name in catalog.ids)


def fixes(project: Path) -> Iterator[Listed]:
    """Every fix, by the name of its check, with its title."""
    from nodevet.run.context import open_project

    catalog, _ = open_project(project)
    yield from (Listed(name, catalog.fix_title(name)) for name in catalog.fixes)


def baselines(project: Path) -> Iterator[Listed]:
    """Every baseline with its file."""
    from nodevet.baseline import available
    from nodevet.run.context import open_project

    _, folders = open_project(project)
    yield from (Listed(name, str(path)) for name, path in available(folders))


def formats(project: Path) -> Iterator[Listed]:
    """Every report format."""
    from nodevet import report

    yield from map(Listed, report.formats())


def sources(project: Path) -> Iterator[Listed]:
    """Every source of an inventory, with what it reads."""
    from nodevet.inventory.sources import sources as found

    yield from (Listed(each.__name__.rpartition(".")[2], each.KIND) for each in found())


def sections(project: Path) -> Iterator[Listed]:
    """Every section of the evidence."""
    from nodevet.remote.probe.sections import names

    yield from map(Listed, names())


def resources(project: Path) -> Iterator[Listed]:
    """Every kind of resource that a fix can change."""
    from nodevet import resource

    yield from map(Listed, resource.KINDS)


KINDS = {
    "checks": checks,
    "fixes": fixes,
    "baselines": baselines,
    "formats": formats,
    "sources": sources,
    "sections": sections,
    "resources": resources,
}
"""What can be listed. Each takes the project's folder."""
