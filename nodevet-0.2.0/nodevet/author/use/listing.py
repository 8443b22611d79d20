"""List everything of each kind, discovered in the same way as by its users.

Importing this module costs nothing; listing imports the listed modules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nodevet.base.project import Project

if TYPE_CHECKING:
    from nodevet.checking.catalog import Catalog

Row = dict[str, str]
"""One thing: its name first, then its description; every row of a kind has the same keys."""
OWN = "a check of this project, or one that every shipped baseline asks"


def checks(project: Project | Path) -> Iterator[Row]:
    """Every check: its severity, area and title."""
    from nodevet.checking.catalog import CatalogError
    from nodevet.vet.use.context import open_project

    catalog, _ = open_project(project)
    for name in catalog.ids:
        try:
            check = catalog.check(name)
            severity, area = check.severity.value, check.area.value
            title = catalog.title(name)
        except (CatalogError, AttributeError) as error:  # a user's own check
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
    """Every baseline: its title, its number of checks, and its file."""
    from nodevet.baseline import available
    from nodevet.document.text import display_path
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    for name, path in available(folders):
        expected = checks_of(path, folders, catalog)
        total = f"{len(expected)} of {len(catalog.ids)} checks" if expected else "cannot be used"
        yield {"name": name, "title": _title(path), "checks": total, "file": display_path(path)}


def checks_of(path: Path, folders: "Sequence[Path]", catalog: "Catalog") -> tuple[str, ...]:
    """The checks that a baseline expects; none if it cannot be used."""
    from nodevet.baseline import BaselineErrors, load

    try:
        (baseline,) = load([str(path)], folders=folders, catalog=catalog)
    except BaselineErrors:
        return ()
    return tuple(expectation.check for expectation in baseline.expectations)


def unexpected_checks(project: Project | Path) -> dict[str, dict[str, str]]:
    """By baseline, the checks that it does not expect, and why."""
    from nodevet.baseline import available
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    reasons = {name: catalog.check(name).unasked or OWN for name in catalog.ids}
    result = {}
    for name, path in available(folders):
        expected = set(checks_of(path, folders, catalog))
        result[name] = {check: why for check, why in reasons.items() if check not in expected}
    return result


def _title(path: Path) -> str:
    """The title in a baseline's own file; "" if there is none, or it cannot be read."""
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
        yield {"name": name, "about": _about(file)}


def sources(project: Project | Path) -> Iterator[Row]:
    """Every source of an inventory, with a description of its input."""
    from nodevet.inventory.sources import sources as found

    for source in found():
        yield {"name": source.__name__.rpartition(".")[2], "about": source.KIND}


def sections(project: Project | Path) -> Iterator[Row]:
    """Every section of the evidence."""
    from nodevet.remote.probe.sections import names

    for name in names():
        yield {"name": name, "about": _about(f"nodevet.remote.probe.collectors.{name}")}


def resources(project: Project | Path) -> Iterator[Row]:
    """Every kind of resource that a fix can change."""
    from nodevet import resource

    for name in resource.KINDS:
        yield {"name": name, "about": _about(f"nodevet.resource.{name}")}


def _about(module: str) -> str:
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
"""The kinds that can be listed. Each function takes the project."""
