"""Lint: all problems of a project's own files, each with its line."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from nodevet import inventory, settings
from nodevet.author.use.lint_code import lint_check, lint_fix
from nodevet.base.features import feature_modules
from nodevet.base.files import read_input
from nodevet.base.problems import Place, Problem
from nodevet.base.project import Project
from nodevet.baseline import lint as lint_baselines
from nodevet.baseline.library import ENDINGS
from nodevet.checking.catalog import Catalog, CatalogError
from nodevet.document.kinds import MOST_BYTES, DocumentKind, Lintable, is_claimed, kind_of
from nodevet.document.text import display_path
from nodevet.inventory import InventoryError
from nodevet.inventory.sources import is_program
from nodevet.settings import SettingsError
from nodevet.vet.use.context import candidates, open_project

SKIPPED = "not a nodevet file; a baseline or an inventory begins with `nodevet: 1`"
PROGRAM = "it is a program that prints an inventory, and lint does not run programs"
_PLACED = re.compile(r"(.+):([0-9]{1,9}):([0-9]{1,9})")


class LintProblem(Struct, frozen=True, kw_only=True):
    """One problem. `kind`: of its file; `line`: the text of its line."""

    problem: Problem
    kind: str  # baseline, inventory, workload, approval, settings, check, fix
    line: str | None = None


class Linted(Struct, frozen=True, kw_only=True):
    """The checked files, by kind, and their problems."""

    files: Mapping[str, tuple[str, ...]]
    found: tuple[LintProblem, ...]
    skipped: Mapping[str, str] = {}  # files that were not checked, and why
    shipped: bool = False  # the project has no files of its own

    @property
    def errors(self) -> int:
        return sum(not item.problem.warning for item in self.found)

    @property
    def warnings(self) -> int:
        return len(self.found) - self.errors


class _Linter:
    """Checks files, and collects their problems."""

    def __init__(self, catalog: Catalog, folders: Sequence[Path], today: date) -> None:
        self.catalog = catalog
        self._folders = folders
        self._today = today
        self.files: dict[str, list[str]] = {}
        self.problems: dict[Problem, str] = {}
        self.skipped: dict[str, str] = {}

    def take(self, kind: str, names: Iterable[str], problems: Iterable[Problem]) -> None:
        files = self.files.setdefault(kind, [])
        files += [name for name in names if name not in files]
        for problem in problems:
            self.problems.setdefault(problem, kind)

    def baselines(self, names: Sequence[str]) -> None:
        """Check baselines together, to find two with the same name."""
        if names:
            problems = lint_baselines(
                names, folders=self._folders, catalog=self.catalog, today=self._today
            )
            self.take("baseline", names, problems)

    def inventory(self, path: Path) -> None:
        self.take("inventory", [display_path(path)], _inventory(path))

    def lintable(self, kind: Lintable, path: Path) -> None:
        """Check a file of a feature's kind."""
        self.take(kind.name, *kind.look(path))

    def settings(self, path: Path) -> None:
        try:
            settings.read(path)
            problems: tuple[Problem, ...] = ()
        except SettingsError as error:
            problems = error.problems
        self.take("settings", [display_path(path)], problems)

    def check(self, name: str) -> None:
        path = self.catalog.path(name)
        self.take("check", [display_path(path)], lint_check(self.catalog, name))

    def fix(self, name: str) -> None:
        path = self.catalog.fix_path(name)
        self.take("fix", [display_path(path)], lint_fix(self.catalog, name))

    def named(self, name: str) -> None:
        """Check one word of the command line: a file of any kind, a folder, or the name of a
        baseline."""
        path = Path(name)
        if name and path.is_dir() and (inside := _yaml(path)):
            for file in inside:
                self.named(str(file))
            return
        if not path.is_file():
            self.baselines([name])
            return
        if path.suffix == ".toml":
            self.settings(path)
            return
        kind = kind_of(path)
        if path.suffix == ".py" or kind is DocumentKind.FIX:
            self._code(path)
        elif path.parent.resolve() in {folder.resolve() for folder in self._folders}:
            self.baselines([name])
        elif kind is DocumentKind.INVENTORY and is_program(path):
            self.skipped[name] = PROGRAM
        elif kind is DocumentKind.INVENTORY:
            self.inventory(path)
        elif lintable := next(
            (item for item in kinds() if kind is item.kind or path.name in item.names), None
        ):
            self.lintable(lintable, path)
        elif kind is None and not is_claimed(read_input(path, MOST_BYTES)):
            self.skipped[name] = SKIPPED
        else:
            self.baselines([name])

    def _code(self, path: Path) -> None:
        """Check a file that may be a check or a fix of this project."""
        for own, path_of, lint_name in (
            (self.catalog.own_checks, self.catalog.path, self.check),
            (self.catalog.own_fixes, self.catalog.fix_path, self.fix),
        ):
            if path.stem in own and path_of(path.stem).resolve() == path.resolve():
                lint_name(path.stem)
                return
        self.skipped[str(path)] = "it is not a check or a fix of this project (--project)"

    def _of_kind(self, kind: Lintable, project: Path) -> None:
        """Check all files of a kind: by their names, else by their content."""
        for name in kind.names:
            if (project / name).exists():
                self.lintable(kind, project / name)
                return
        if kind.folder:
            for path in (*_yaml(project), *_yaml(project / kind.folder)):
                if kind_of(path) is kind.kind:
                    self.lintable(kind, path)

    def project(self, project: Path) -> None:
        """Check all of the project's own files."""
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
        for name in self.catalog.own_checks:
            self.check(name)
        for name in self.catalog.own_fixes:
            self.fix(name)


@cache
def kinds() -> tuple[Lintable, ...]:
    """The kinds of files that features list in their linting.py."""
    return tuple(kind for feature in feature_modules("linting") for kind in feature.LINTED)


def lint(names: Sequence[str], project: Project | Path, today: date) -> Linted:
    """The problems of these files and baselines; without names, of the project's own, or of the
    shipped baselines if it has none. Never raises for a file's content."""
    try:
        catalog, folders = open_project(project)
    except CatalogError as error:  # a name is taken: none of the project's code is loaded
        file, _, message = str(error).partition(": ")
        problem = _placed(Problem(Place(error.line, error.column, file), "", message))
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
    placed = ((_placed(problem), kind) for problem, kind in linter.problems.items())
    problems = (
        LintProblem(problem=problem, kind=kind, line=sources.line(problem.place))
        for problem, kind in placed
    )
    return Linted(
        files={kind: tuple(paths) for kind, paths in linter.files.items()},
        found=tuple(problems),
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


def _placed(problem: Problem) -> Problem:
    """The problem with its place as a `Place`."""
    match = None if isinstance(problem.where, Place) else _PLACED.fullmatch(str(problem.where))
    if not match:
        return structs.replace(problem, where=problem.place)
    return structs.replace(problem, where=Place(int(match[2]), int(match[3]), match[1]))


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
    """The lines as YAML and editors count them; none if the file cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ()
        return re.split("\r\n|\r|\n", path.read_bytes().decode("utf-8-sig", "replace"))
    except (OSError, ValueError):
        return ()
