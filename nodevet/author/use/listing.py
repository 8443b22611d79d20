"""What there is of each kind: found by folder, as everything that uses it finds it.

Importing this costs nothing; listing imports what it lists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nodevet.base.project import Project

if TYPE_CHECKING:
    from nodevet.checking.catalog import Catalog

Row = dict[str, str]
"""One thing: its name first, then what it is for; every row of a kind has the same keys."""
OWN = "a check of this project, or one that every shipped baseline asks"


def checks(project: Project | Path) -> Iterator[Row]:
    """Every check: how severe a failure is, its area and title."""
    from nodevet.checking.catalog import CatalogError
    from nodevet.vet.use.context import open_project

    catalog, _ = open_project(project)
    for name in catalog.ids:
        try:
            check = catalog.check(name)
            severity, area = check.severity.value, check.area.value
            title = catalog.title(name)
        except (CatalogError, AttributeError) as error:  # of a user's own
            severity, area, title = "", "", f"cannot be used: {error}"
        yield {"name": name, "severity": severity, "area": area, "title": title}


def fixes(project: Project | Path) -> Iterator[Row]:
    """Every fix, by the name of its check: its highest risk, and its title."""
    from nodevet.checking.catalog import CatalogError
    from nodevet.vet.use.context import open_project

    catalog, _ = open_project(project)
    for name in catalog.fixes:
        try:
            fix = catalog.fix(name)
            risk, title = fix.risk.value if fix else "", catalog.fix_title(name)
        except CatalogError as error:
            risk, title = "", f"cannot be used: {error}"
        yield {"name": name, "risk": risk, "title": title}


def baselines(project: Project | Path) -> Iterator[Row]:
    """Every baseline: its title, how many of all checks it asks for, and its file."""
    from nodevet.baseline import available
    from nodevet.document.text import shown
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    for name, path in available(folders):
        asked = checks_of(path, folders, catalog)
        counted = f"{len(asked)} of {len(catalog.ids)} checks" if asked else "cannot be used"
        yield {"name": name, "title": _title(path), "checks": counted, "file": shown(path)}


def checks_of(path: Path, folders: "Sequence[Path]", catalog: "Catalog") -> tuple[str, ...]:
    """The checks that a baseline asks for; none if it cannot be used."""
    from nodevet.baseline import BaselineErrors, load

    try:
        (baseline,) = load([str(path)], folders=folders, catalog=catalog)
    except BaselineErrors:
        return ()
    return tuple(wish.check for wish in baseline.expectations)


def left_out(project: Project | Path) -> dict[str, dict[str, str]]:
    """Of every baseline the checks that it does not ask for, and why."""
    from nodevet.baseline import available
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    whys = {name: catalog.check(name).unasked or OWN for name in catalog.ids}
    found = {}
    for name, path in available(folders):
        asked = set(checks_of(path, folders, catalog))
        found[name] = {check: why for check, why in whys.items() if check not in asked}
    return found


def _title(path: Path) -> str:
    """What a baseline's own file says; empty if it says nothing, or cannot be read."""
    from nodevet.document.parse import parse
    from nodevet.document.text import UnreadableError, read
    from nodevet.document.tree import Scalar

    try:
        root = parse(read(path)).root
    except UnreadableError:
        return ""
    entry = root.get("title") if root else None
    value = entry.value if entry else None
    return value.text if isinstance(value, Scalar) else ""


def formats(project: Project | Path) -> Iterator[Row]:
    """Every report format."""
    from nodevet.sheet import RENDERERS
    from nodevet.vet.formats import formats as names
    from nodevet.vet.formats import has_module, module

    for name in names():
        file = module(name).__name__ if has_module(name) else f"nodevet.sheet.{RENDERERS[name]}"
        yield {"name": name, "about": _said_of(file)}


def sources(project: Project | Path) -> Iterator[Row]:
    """Every source of an inventory, with what it reads."""
    from nodevet.inventory.sources import sources as found

    for each in found():
        yield {"name": each.__name__.rpartition(".")[2], "about": each.KIND}


def sections(project: Project | Path) -> Iterator[Row]:
    """Every section of the evidence."""
    from nodevet.remote.probe.sections import names

    for name in names():
        yield {"name": name, "about": _said_of(f"nodevet.remote.probe.collectors.{name}")}


def resources(project: Project | Path) -> Iterator[Row]:
    """Every kind of resource that a fix can change."""
    from nodevet import resource

    for name in resource.KINDS:
        yield {"name": name, "about": _said_of(f"nodevet.resource.{name}")}


def _said_of(module: str) -> str:
    """The first line of a module's docstring, without its full stop."""
    return (import_module(module).__doc__ or "").split("\n", 1)[0].removesuffix(".")


KINDS: Mapping[str, Callable[[Project | Path], Iterator[Row]]] = {
    "checks": checks,
    "fixes": fixes,
    "baselines": baselines,
    "formats": formats,
    "sources": sources,
    "sections": sections,
    "resources": resources,
}
"""What can be listed. Each takes the project's folder."""
