"""Finds checks: the shipped ones, then the user's own folders, by the same rule.

One file is one check and its name is its id. Nothing is registered: a check
exists because its file does, and is imported when a baseline names it.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

import nodevet.checks
from nodevet.model import Check


class CatalogError(Exception):
    """A check that cannot be found or used; the message is for the user."""


class Catalog:
    """The checks of this installation and of the user's own folders."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._files = dict(_checks_in(Path(nodevet.checks.__path__[0])))
        self._shipped = frozenset(self._files)
        for folder in folders:
            for name, path in _checks_in(folder):
                if name not in self._files:
                    self._files[name] = path
                elif name not in self._shipped:
                    raise CatalogError(f"{path}: {self._files[name]} has the same name; rename one")
                elif path.read_bytes() != self._files[name].read_bytes():
                    # equal: nodevet's own source tree is the project
                    raise CatalogError(
                        f"{path}: a check named {name} is shipped; give yours another name"
                    )

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    def path(self, check: str) -> Path:
        """The file of a check. Raises CatalogError for an unknown id."""
        if check not in self._files:
            near = get_close_matches(check, self.ids, 1)
            hint = f"; did you mean {near[0]}?" if near else "; `nodevet list checks` names them"
            raise CatalogError(f"no check is named {check!r}{hint}")
        return self._files[check]

    def module(self, check: str) -> ModuleType:
        """The module of a check. Raises CatalogError for an unknown id or a broken file."""
        path = self.path(check)
        if check in self._shipped:
            return importlib.import_module(f"nodevet.checks.{check}")
        return _load(path)

    def check(self, check: str) -> Check:
        """The check itself. Raises CatalogError like `module`."""
        found = getattr(self.module(check), "CHECK", None)
        if not isinstance(found, Check):
            raise CatalogError(f"{self.path(check)}: defines no CHECK")
        return found

    def title(self, check: str) -> str:
        """The first line of a check's page."""
        return self.page(check).split("\n", 1)[0]

    def page(self, check: str) -> str:
        """A check's page: its docstring, read without running the file. Raises CatalogError."""
        path = self.path(check)
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            raise _broken(path, error) from error
        return ast.get_docstring(tree) or ""


def _checks_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The checks of a folder by name; `_helper.py` is none."""
    for path in sorted(folder.glob("*.py")):
        if not path.stem.startswith("_"):
            yield path.stem, path


def _load(path: Path) -> ModuleType:
    name = f"nodevet_user_checks.{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CatalogError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(path, error) from error
    return module


def _broken(path: Path, error: BaseException) -> CatalogError:
    """What is wrong with a check's file, and in which line."""
    line = getattr(error, "lineno", None) or _line_in(error, path)
    place = f"{path}:{line}" if line else str(path)
    return CatalogError(f"{place}: {type(error).__name__}: {error}")


def _line_in(error: BaseException, path: Path) -> int | None:
    """The last line of `path` that the traceback went through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
