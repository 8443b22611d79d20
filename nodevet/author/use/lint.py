"""Lint: everything that is wrong with a project's own files, each with the line it stands in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from nodevet import inventory, settings
from nodevet.author.use.lint_code import lint_check, lint_fix
from nodevet.base.features import answers
from nodevet.base.files import read_input
from nodevet.base.problems import Place, Problem
from nodevet.base.project import Project
from nodevet.baseline import lint as lint_baselines
from nodevet.baseline.library import ENDINGS
from nodevet.checking.catalog import Catalog, CatalogError
from nodevet.document.kinds import MOST_BYTES, DocumentKind, is_claimed, kind_of
from nodevet.document.lintable import Lintable
from nodevet.document.text import shown
from nodevet.inventory import InventoryError
from nodevet.inventory.sources import is_program
from nodevet.settings import SettingsError
from nodevet.vet.use.context import candidates, open_project

SKIPPED = "it is not a file of nodevet's; a baseline or an inventory begins with `nodevet: 1`"
PROGRAM = "it is a program that prints an inventory, and lint runs none"
_PLACED = re.compile(r"(.+):([0-9]{1,9}):([0-9]{1,9})")


class LintProblem(Struct, frozen=True, kw_only=True):
    """One problem. `kind`: of what file; `line`: the text that it stands in, without its end."""

    problem: Problem
    kind: str  # baseline, inventory, workload, approval, settings, check, fix
    line: str | None = None


class Linted(Struct, frozen=True, kw_only=True):
    """What was looked at, by kind, and all that was found."""

    files: Mapping[str, tuple[str, ...]]
    found: tuple[LintProblem, ...]
    skipped: Mapping[str, str] = {}  # files that were not looked at, and why
    shipped: bool = False  # the project has no files of its own

    @property
    def errors(self) -> int:
        return sum(not each.problem.warning for each in self.found)

    @property
    def warnings(self) -> int:
        return len(self.found) - self.errors


class _Linter:
    """Looks at files one kind after another."""

    def __init__(self, catalog: Catalog, folders: Sequence[Path], today: date) -> None:
        self.catalog = catalog
        self._folders = folders
        self._today = today
        self.files: dict[str, list[str]] = {}
        self.problems: dict[Problem, str] = {}
        self.skipped: dict[str, str] = {}

    def take(self, kind: str, names: Iterable[str], problems: Iterable[Problem]) -> None:
        listed = self.files.setdefault(kind, [])
        listed += [name for name in names if name not in listed]
        for problem in problems:
            self.problems.setdefault(problem, kind)

    def baselines(self, names: Sequence[str]) -> None:
        """Together, so that two of one name are found."""
        if names:
            found = lint_baselines(
                names, folders=self._folders, catalog=self.catalog, today=self._today
            )
            self.take("baseline", names, found)

    def inventory(self, path: Path) -> None:
        self.take("inventory", [shown(path)], _inventory(path))

    def lintable(self, kind: Lintable, path: Path) -> None:
        """A file of a feature's kind."""
        self.take(kind.name, *kind.look(path))

    def settings(self, path: Path) -> None:
        try:
            settings.read(path)
            problems: tuple[Problem, ...] = ()
        except SettingsError as error:
            problems = error.problems
        self.take("settings", [shown(path)], problems)

    def check(self, name: str) -> None:
        path = self.catalog.path(name)
        self.take("check", [shown(path)], lint_check(self.catalog, name))

    def fix(self, name: str) -> None:
        path = self.catalog.fix_path(name)
        self.take("fix", [shown(path)], lint_fix(self.catalog, name))

    def named(self, name: str) -> None:
        """One word of the command line: a file of any kind, a folder of them, or the name of a
        baseline."""
        path = Path(name)
        if name and path.is_dir() and (inside := _yaml(path)):
            for each in inside:
                self.named(str(each))
            return
        if not path.is_file():
            self.baselines([name])
            return
        if path.suffix == ".toml":
            self.settings(path)
            return
        kind = kind_of(path)
        if path.suffix == ".py":
            self._code(path)
        elif path.parent.resolve() in {folder.resolve() for folder in self._folders}:
            self.baselines([name])
        elif kind is DocumentKind.INVENTORY and is_program(path):
            self.skipped[name] = PROGRAM
        elif kind is DocumentKind.INVENTORY:
            self.inventory(path)
        elif found := next((one for one in kinds() if _is_of(one, kind, path)), None):
            self.lintable(found, path)
        elif kind is None and not is_claimed(read_input(path, MOST_BYTES)):
            self.skipped[name] = SKIPPED
        else:
            self.baselines([name])

    def _code(self, path: Path) -> None:
        """A check or a fix of this project, or nothing of nodevet's."""
        for own, where, look in (
            (self.catalog.own, self.catalog.path, self.check),
            (self.catalog.own_fixes, self.catalog.fix_path, self.fix),
        ):
            if path.stem in own and where(path.stem).resolve() == path.resolve():
                look(path.stem)
                return
        self.skipped[str(path)] = "it is not a check or a fix of this project (--project)"

    def _of_kind(self, kind: Lintable, project: Path) -> None:
        """All files of a kind: by their names, else by what they hold."""
        for name in kind.names:
            if (project / name).exists():
                self.lintable(kind, project / name)
                return
        if kind.folder:
            for path in (*_yaml(project), *_yaml(project / kind.folder)):
                if kind_of(path) is kind.kind:
                    self.lintable(kind, path)

    def project(self, project: Path) -> None:
        """All that is the project's own."""
        self.baselines([str(path) for folder in self._folders for path in _yaml(folder)])
        for path in _yaml(project):
            if kind_of(path) is DocumentKind.BASELINE:
                self.baselines([str(path)])
        for path in (*_yaml(project), *_yaml(project / "inventories")):
            if kind_of(path) is DocumentKind.INVENTORY:
                self.inventory(path)
        for kind in kinds():
            self._of_kind(kind, project)
        if (project / settings.NAME).is_file():
            self.settings(project / settings.NAME)
        for name in self.catalog.own:
            self.check(name)
        for name in self.catalog.own_fixes:
            self.fix(name)


@cache
def kinds() -> tuple[Lintable, ...]:
    """The kinds of files that features list in their linting.py."""
    return tuple(kind for feature in answers("linting") for kind in feature.LINTED)


def _is_of(one: Lintable, kind: DocumentKind | None, path: Path) -> bool:
    return kind is one.kind or path.name in one.names


def lint(names: Sequence[str], project: Project | Path, today: date) -> Linted:
    """What is wrong with these files and baselines; without any, with the project's own, or with
    the shipped baselines if it has none. Never raises for what a file holds."""
    try:
        catalog, folders = open_project(project)
    except CatalogError as error:  # a name is taken: none of the project's code is loaded
        problem = _placed(Problem(_head(error), "", _rest(error)))
        return Linted(files={}, found=(LintProblem(problem=problem, kind="check"),))
    linter = _Linter(catalog, folders, today)
    if names:
        for name in names:
            linter.named(name)
    else:
        linter.project(catalog.project.folder)
    shipped = not names and not linter.files
    if shipped:
        linter.baselines(candidates(()))
    sources = _Sources()
    found = (
        LintProblem(problem=one, kind=kind, line=sources.line(one.place))
        for one, kind in ((_placed(each), kind) for each, kind in linter.problems.items())
    )
    return Linted(
        files={kind: tuple(listed) for kind, listed in linter.files.items()},
        found=tuple(found),
        skipped=linter.skipped,
        shipped=shipped,
    )


def _yaml(folder: Path) -> list[Path]:
    return sorted(path for ending in ENDINGS for path in folder.glob(f"*{ending}"))


def _inventory(path: Path) -> tuple[Problem, ...]:
    try:
        inventory.read((), inventories=[str(path)])
    except InventoryError as error:
        return error.problems
    return ()


def _head(error: CatalogError) -> Place:
    return Place(error.line, error.column, str(error).partition(": ")[0])


def _rest(error: CatalogError) -> str:
    return str(error).partition(": ")[2]


def _placed(problem: Problem) -> Problem:
    """With a place whose line and column are numbers, whatever says where it is."""
    found = None if isinstance(problem.where, Place) else _PLACED.fullmatch(str(problem.where))
    if not found:
        return structs.replace(problem, where=problem.place)
    return structs.replace(problem, where=Place(int(found[2]), int(found[3]), found[1]))


class _Sources:
    """The lines of files, each read once."""

    def __init__(self) -> None:
        self._lines: dict[str, Sequence[str]] = {}

    def line(self, place: Place) -> str | None:
        if not place.line:
            return None
        if place.file not in self._lines:
            self._lines[place.file] = _lines(Path(place.file))
        lines = self._lines[place.file]
        return lines[place.line - 1] if place.line <= len(lines) else None


def _lines(path: Path) -> Sequence[str]:
    """As YAML and editors count them; none of a file that cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ()
        return re.split("\r\n|\r|\n", path.read_bytes().decode("utf-8-sig", "replace"))
    except (OSError, ValueError):
        return ()
