"""Finds checks and fixes: the shipped ones, then the user's own folders, by the same rule.

One file is one check, and the file's name is its id; a fix has the name of the check that it
answers. Nothing is registered: a check exists because its file exists. nodevet imports a check when
a baseline names it, and a fix when its check fails.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

import nodevet.checks
import nodevet.fixes
from nodevet.base import typed
from nodevet.base.files import open_regular
from nodevet.base.problems import did_you_mean
from nodevet.base.project import Project
from nodevet.evidence.sections import unknown_path
from nodevet.model import Check, NeededAction

if TYPE_CHECKING:
    from nodevet.fixing.model import Fix

LARGEST = 1 << 20  # bytes of a check or a fix
PYTHON, YAML = ".py", (".yaml", ".yml")

FixReader = Callable[[Path], "tuple[str, Fix]"]
"""The title and the fix of a YAML file. Raises CatalogError."""


class CatalogError(Exception):
    """A check or fix cannot be found or used; the message is for the user.

    `line` and `column` of its file; 0 if they are not known.
    """

    line = 0
    column = 0


class RefusedCodeError(CatalogError):
    """A file of the project that nodevet does not run, because other users may change it."""


class Catalog:
    """The checks and fixes of this installation and of the user's own folders."""

    def __init__(
        self,
        folders: Iterable[Path] = (),
        fixes: Iterable[Path] = (),
        project: Project | None = None,
        read_fix: FixReader | None = None,
    ) -> None:
        """`folders` hold checks, `fixes` fixes; `read_fix` reads those that are YAML. Raises
        CatalogError if a name is taken."""
        self.project = project = project or Project()
        self._found: dict[str, Check] = {}
        self._actions: dict[str, Mapping[str, NeededAction]] = {}
        self._risks: dict[str, str] = {}
        checks = ("check", "give yours another name")
        self._checks = _Directory(nodevet.checks, folders, *checks, project)
        endings = (PYTHON, *(YAML if read_fix else ()))
        self._fixes = _Directory(nodevet.fixes, fixes, "fix", "remove yours", project, endings)
        self._read_fix = read_fix
        for name in sorted(self._fixes.own_names - set(self.ids)):
            text = f"{self._fixes.path(name)}: a fix has the name of its check, and no check is "
            text += f"named {name!r}"
            raise CatalogError("; ".join(filter(None, (text, did_you_mean(name, self.ids)))))

    @property
    def ids(self) -> tuple[str, ...]:
        return self._checks.ids

    @property
    def own_checks(self) -> tuple[str, ...]:
        """The checks of the user's own folders."""
        return tuple(sorted(self._checks.own_names))

    @property
    def own_fixes(self) -> tuple[str, ...]:
        """The fixes of the user's own folders."""
        return tuple(sorted(self._fixes.own_names))

    def path(self, check: str) -> Path:
        """The file of a check. Raises CatalogError for an unknown id."""
        return self._checks.path(check)

    def module(self, check: str) -> ModuleType:
        """The module of a check. Raises CatalogError for an unknown id or a broken file."""
        return self._checks.module(check)

    def check(self, check: str) -> Check:
        """The check itself. Raises CatalogError like `module`."""
        if check not in self._found:
            candidate = getattr(self.module(check), "CHECK", None)
            if not isinstance(candidate, Check):
                raise CatalogError(f"{self.path(check)}: defines no CHECK")
            if check in self._checks.own_names:  # tests verify this for the shipped checks
                for path in candidate.reads:
                    if problem := unknown_path(path):
                        raise CatalogError(f"{self.path(check)}: reads {path!r}: {problem}")
                from nodevet.checking.unfit import (
                    unfit_params,  # only for own checks, because the import is slow
                )

                if problem := unfit_params(candidate.params):
                    raise CatalogError(f"{self.path(check)}: {problem}")
            self._found[check] = candidate
        return self._found[check]

    def actions(self, check: str) -> Mapping[str, NeededAction]:
        """What a failure needs, by a text of the check's advice. Raises CatalogError like `module`,
        and msgspec.ValidationError for a check of the user's that has something else."""
        if check not in self._actions:
            declared = self.check(check).actions
            self._actions[check] = typed.convert(declared, dict[str, NeededAction])
        return self._actions[check]

    def title(self, check: str) -> str:
        """The first line of a check's page."""
        return self.page(check).split("\n", 1)[0]

    def page(self, check: str) -> str:
        """A check's page: its docstring, read without running the file. Raises CatalogError."""
        return self._checks.page(check)

    @property
    def fixes(self) -> tuple[str, ...]:
        """The checks that have a fix."""
        return self._fixes.ids

    def fix(self, check: str) -> "Fix | None":
        """The fix of a check, if there is one. Raises CatalogError for a broken file."""
        if check not in self._fixes.ids:
            return None
        if yaml := self._yaml_fix(check):
            return yaml[1]
        from nodevet.fixing.model import Fix  # only for fixes, because the import is slow

        candidate = getattr(self._fixes.module(check), "FIX", None)
        if not isinstance(candidate, Fix):
            raise CatalogError(f"{self._fixes.path(check)}: defines no FIX")
        if problem := candidate.problem:
            raise CatalogError(f"{self._fixes.path(check)}: {problem}")
        return candidate

    def fix_risk(self, check: str) -> str:
        """The highest risk of a check's fix; empty without a fix. The file of a shipped fix says it
        without an import, which is slow. Raises CatalogError like `fix`."""
        if check not in self._fixes.ids:
            return ""
        if check not in self._risks:
            own = self.fix(check) if check in self._fixes.own_names else None
            risk = own.risk.value if own else _declared_risk(self._fixes.tree(check))
            self._risks[check] = risk
        return self._risks[check]

    def order(self, fixes: Iterable[str]) -> tuple[str, ...]:
        """These fixes in the order in which they run on a node: each fix after the fixes that it
        names.

        Raises CatalogError for a name that no fix has, and for fixes that wait for one another.
        """
        from graphlib import CycleError, TopologicalSorter
        from heapq import heappop, heappush

        known: dict[str, Fix | None] = {}
        wanted_fixes = set(fixes)
        pending = sorted(wanted_fixes)
        while pending:
            name = pending.pop()
            if name not in known:
                known[name] = self.fix(name)
                pending += self._follows(known[name], name)
        follows = {name: fix.follows if fix else () for name, fix in known.items()}
        sorter = TopologicalSorter(follows)
        try:
            sorter.prepare()
        except CycleError as error:
            around = " comes after ".join(str(self.fix_path(name)) for name in error.args[1][::-1])
            raise CatalogError(f"{around}: remove one of them from `after`") from error
        ready: list[tuple[int, str]] = []
        ordered: list[str] = []
        while sorter.is_active():
            for name in sorter.get_ready():
                fix = known[name]
                heappush(ready, (fix.rank if fix else 1, name))
            _, first = heappop(ready)
            ordered.append(first)
            sorter.done(first)
        return tuple(name for name in ordered if name in wanted_fixes)

    def _follows(self, fix: "Fix | None", name: str) -> tuple[str, ...]:
        """The fixes that it must follow. Raises CatalogError if one of them does not exist."""
        follows = fix.follows if fix else ()
        for other in follows:
            if other not in self._fixes.ids:
                text = (
                    f"{self.fix_path(name)}: its `after` names {other!r}, and no fix has that name"
                )
                near = did_you_mean(other, self._fixes.ids)
                raise CatalogError("; ".join(filter(None, (text, near))))
        return follows

    def fix_path(self, check: str) -> Path:
        """The file of a fix. Raises CatalogError if there is none."""
        return self._fixes.path(check)

    def fix_title(self, check: str) -> str:
        """The first line of a fix's page."""
        return self.fix_page(check).split("\n", 1)[0]

    def fix_page(self, check: str) -> str:
        """A fix's page, like `page`. Raises CatalogError, also if there is no fix."""
        yaml = self._yaml_fix(check)
        return yaml[0] if yaml else self._fixes.page(check)

    def _yaml_fix(self, check: str) -> "tuple[str, Fix] | None":
        """The title and the fix, if it is written in YAML. Raises CatalogError."""
        path = self._fixes.path(check)
        if self._read_fix is None or path.suffix == PYTHON:
            return None
        self._fixes.require_trusted(path)
        return self._read_fix(path)


class _Directory:
    """The files of one kind by their names, without files such as `_helper.py`."""

    def __init__(
        self,
        shipped: ModuleType,
        folders: Iterable[Path],
        noun: str,
        advice: str,
        project: Project,
        endings: tuple[str, ...] = (PYTHON,),
    ) -> None:
        self._project = project
        self._package = shipped.__name__
        self._noun = noun
        self._plural = f"{noun}es" if noun.endswith("x") else f"{noun}s"
        self._files = dict(_files_in(Path(shipped.__path__[0])))
        self._shipped = frozenset(self._files)
        for folder in folders:
            for name, path in _files_in(folder, endings):
                if name not in self._files:
                    self._files[name] = path
                elif name not in self._shipped:
                    raise CatalogError(f"{path}: {self._files[name]} has the same name; rename one")
                elif source(path) != source(self._files[name]):
                    # equal: nodevet's own source tree is the project
                    raise CatalogError(f"{path}: a {noun} named {name} is shipped; {advice}")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    @property
    def own_names(self) -> frozenset[str]:
        """The names of files in the user's folders."""
        return frozenset(self._files) - self._shipped

    def path(self, name: str) -> Path:
        if name not in self._files:
            hint = did_you_mean(name, self.ids, f"`nodevet list {self._plural}` names them")
            raise CatalogError(f"no {self._noun} is named {name!r}; {hint}")
        return self._files[name]

    def module(self, name: str) -> ModuleType:
        path = self.path(name)
        if name in self._shipped:
            return importlib.import_module(f"{self._package}.{name}")
        self.require_trusted(path)
        return _load(path, f"nodevet_user_{self._plural}.{name}")

    def require_trusted(self, path: Path) -> None:
        """Raises RefusedCodeError if other users may change this file of the project."""
        if why := self._project.code_refusal(path):
            raise RefusedCodeError(f"{path}: {why}")

    def page(self, name: str) -> str:
        return ast.get_docstring(self.tree(name)) or ""

    def tree(self, name: str) -> ast.Module:
        path = self.path(name)
        try:
            return ast.parse(source(path))
        except (SyntaxError, ValueError) as error:
            raise _file_error(path, error) from error


def _declared_risk(tree: ast.Module) -> str:
    """The risk in `FIX = Fix(..., risk=Risk.LIVE)`; empty if it is written in another way.

    >>> _declared_risk(ast.parse("FIX = Fix(plan=plan, risk=Risk.LIVE)"))
    'live'
    """
    for line in tree.body:
        match line:
            case ast.Assign(targets=[ast.Name(id="FIX")], value=ast.Call(keywords=keywords)):
                for keyword in keywords:
                    match keyword:
                        case ast.keyword(
                            arg="risk", value=ast.Attribute(value=ast.Name(id="Risk"), attr=name)
                        ):
                            return name.lower()
    return ""


def source(path: Path) -> bytes:
    """The text of a check or fix. Raises CatalogError if it is not a regular file or larger than
    LARGEST bytes."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > LARGEST:
        raise CatalogError(f"{path}: is larger than {LARGEST >> 20} MiB")
    return data


def _files_in(folder: Path, endings: tuple[str, ...] = (PYTHON,)) -> Iterator[tuple[str, Path]]:
    for path in sorted(path for ending in endings for path in folder.glob(f"*{ending}")):
        if not path.stem.startswith("_"):
            yield path.stem, path


class _SourceLoader(SourceFileLoader):
    """Runs this source and no compiled code, because others may have written to `__pycache__`."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._text, self.path)


def _load(path: Path, name: str) -> ModuleType:
    if name in sys.modules and sys.modules[name].__file__ == str(path.absolute()):
        return sys.modules[name]
    loader = _SourceLoader(name, str(path.absolute()), source(path))
    spec = importlib.util.spec_from_file_location(name, path.absolute(), loader=loader)
    if spec is None:
        raise CatalogError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and typing look up their module here
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _file_error(path, error) from error
    return module


def _file_error(path: Path, error: BaseException) -> CatalogError:
    """The error about a file that cannot be used, with its line."""
    line = getattr(error, "lineno", None) or _line_in(error, path)
    place = f"{path}:{line}" if line else str(path)
    broken = CatalogError(f"{place}: {type(error).__name__}: {error}")
    broken.line, broken.column = line or 0, getattr(error, "offset", None) or 0
    return broken


def _line_in(error: BaseException, path: Path) -> int | None:
    """The last line of `path` that the traceback went through."""
    line, trace, file = None, error.__traceback__, str(path.absolute())
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
