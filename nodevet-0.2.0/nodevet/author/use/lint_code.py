"""The problems of a project's own checks and fixes. Each file is imported, as in a run."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nodevet.base.problems import Place, Problem
from nodevet.checking.catalog import PYTHON, Catalog, CatalogError, source
from nodevet.checking.unfit import unfit_params
from nodevet.document.text import display_path
from nodevet.document.typed_file import read_typed
from nodevet.evidence.sections import unknown_path
from nodevet.fixing.command_fix import CommandFixFile
from nodevet.fixing.model import Fix
from nodevet.model import Area, Check, CheckParams, Severity

JUDGE = "def judge(evidence: Evidence, params: Params) -> Iterator[Finding]"
PLAN = "def plan(evidence, findings, params, *, OPTION: bool) -> Iterator[PlannedChange]"


class _Source:
    """A parsed file, and the places of its parts."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.file = display_path(path)
        self.tree = tree

    def problem(
        self, node: ast.AST | None, path: str, message: str, advice: str = "", **rest: Any
    ) -> Problem:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
        return Problem(Place(line, column, self.file), path, message, advice, **rest)

    def constant(self, text: str) -> ast.AST | None:
        """The first constant with this text."""
        constants = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return next((node for node in constants if node.value == text), None)

    def defined(self, definition: object) -> ast.AST | None:
        """The definition of a function or class in this file."""
        name = getattr(definition, "__name__", "")
        kinds = (ast.FunctionDef, ast.ClassDef)
        definitions = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return next((node for node in definitions if node.name == name), None)

    def assigned(self, name: str) -> ast.AST | None:
        """The assignment to a name at the top of the file."""
        for node in self.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node
        return None


def lint_check(catalog: Catalog, name: str) -> Iterator[Problem]:
    """The problems of a check's file."""
    source = _parse(catalog.path(name))
    if isinstance(source, Problem):
        yield source
        return
    yield from _docstring(source, "`nodevet explain` shows it, and `nodevet list` its first line")
    try:
        check = getattr(catalog.module(name), "CHECK", None)
    except CatalogError as error:
        yield _catalog_problem(source.file, error)
        return
    assignment = source.assigned("CHECK")
    if not isinstance(check, Check):
        advice = "CHECK = Check(params=Params, reads=(...), judge=judge)"
        yield source.problem(assignment, "CHECK", "the file defines no check", advice)
        return
    for path in check.reads:
        if wrong := unknown_path(path):
            yield source.problem(source.constant(path) or assignment, "reads", f"{path}: {wrong}")
    yield from _params(source, check.params, assignment)
    yield from _signature(source, assignment, "judge", check.judge, 2, JUDGE)
    if check.asks is not None:
        yield from _signature(source, assignment, "asks", check.asks, 1, "def asks(params: Params)")
    if check.severities is not None:
        form = "def severities(params: Params)"
        yield from _signature(source, assignment, "severities", check.severities, 1, form)
    for field, value, kind in (
        ("severity", check.severity, Severity),
        ("area", check.area, Area),
    ):
        if not isinstance(value, kind):
            names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
            yield source.problem(assignment, field, f"{value!r} is not one of {names}")


def lint_fix(catalog: Catalog, name: str) -> Iterator[Problem]:
    """The problems of a fix's file."""
    if (path := catalog.fix_path(name)).suffix != PYTHON:
        yield from read_typed(path, CommandFixFile)[1]
        return
    source = _parse(catalog.fix_path(name))
    if isinstance(source, Problem):
        yield source
        return
    yield from _docstring(source, "`nodevet explain` shows it, and `nodevet list` its first line")
    assignment = source.assigned("FIX")
    try:
        fix = catalog.fix(name)
        catalog.order([name])
    except CatalogError as error:
        yield _catalog_problem(source.file, error, assignment)
        return
    if isinstance(fix, Fix):
        yield from _signature(source, assignment, "plan", fix.plan, 3, PLAN, fix.options)


def _parse(path: Path) -> _Source | Problem:
    try:
        return _Source(path, ast.parse(source(path)))
    except SyntaxError as error:
        place = Place(error.lineno or 1, error.offset or 1, display_path(path))
        return Problem(place, "", f"is not Python: {error.msg}")
    except CatalogError as error:
        return Problem(Place(file=display_path(path)), "", str(error).partition(": ")[2])
    except (ValueError, RecursionError) as error:
        return Problem(Place(file=display_path(path)), "", f"cannot be read: {error}")


def _docstring(source: _Source, advice: str) -> Iterator[Problem]:
    if not (ast.get_docstring(source.tree) or "").strip():
        message = "the file has no docstring"
        at = Place(1, 1, source.file)
        yield Problem(at, "", message, f"say what it is about: {advice}", warning=True)


def _params(source: _Source, params: object, assignment: ast.AST | None) -> Iterator[Problem]:
    if not (isinstance(params, type) and issubclass(params, CheckParams)):
        yield source.problem(
            assignment, "params", "is not a class of CheckParams", "give that class"
        )
        return
    fields = params.__struct_fields__
    for role in ("bare", "whole"):
        name = getattr(params, role)
        if name is not None and name not in fields:
            yield source.problem(
                source.defined(params) or assignment,
                "params",
                f"{role}: no field is named {name!r}",
                f"the fields are: {', '.join(fields) or 'none'}",
            )
    if problem := unfit_params(params):
        message, _, advice = problem.partition("; ")
        yield source.problem(source.defined(params) or assignment, "params", message, advice)


def _signature(
    source: _Source,
    assignment: ast.AST | None,
    name: str,
    function: Callable[..., Any],
    positional: int,
    form: str,
    keywords: tuple[str, ...] = (),
) -> Iterator[Problem]:
    """A problem if a function cannot be called as nodevet calls it."""
    try:
        inspect.signature(function).bind(*range(positional), **dict.fromkeys(keywords, True))
    except TypeError as error:
        place = source.defined(function) or assignment
        with_options = f", and its options {', '.join(keywords)}" if keywords else ""
        message = f"cannot be called with {positional} values{with_options}: {error}"
        yield source.problem(place, name, message, f"write it as: {form}")
    except ValueError:
        return  # functions in C have no signature


def _catalog_problem(file: str, error: CatalogError, near: ast.AST | None = None) -> Problem:
    """The error without the place at the beginning of its text; if it has no line, at the line of
    `near`.
    """
    text = str(error)
    head, _, rest = text.partition(": ")
    message = rest if head.startswith("/") or head.split(":")[0].endswith(".py") else text
    line = error.line or getattr(near, "lineno", 0)
    return Problem(Place(line, error.column or 1, file), "", message)
