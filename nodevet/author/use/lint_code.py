"""What is wrong with a project's own checks and fixes. Each file is imported, as a run does."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nodevet.base.problems import Place, Problem
from nodevet.checking.catalog import Catalog, CatalogError, source
from nodevet.checking.unfit import unfit_params
from nodevet.document.text import shown
from nodevet.evidence.sections import unknown_path
from nodevet.fixing.model import Fix
from nodevet.model import Area, Check, CheckParams, Severity

JUDGE = "def judge(evidence: Evidence, params: Params) -> Iterator[Finding]"
PLAN = "def plan(evidence, findings, params, *, OPTION: bool) -> Iterator[PlannedChange]"


class _Source:
    """A file that parses, and where things stand in it."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.file = shown(path)
        self.tree = tree

    def problem(
        self, node: ast.AST | None, path: str, message: str, advice: str = "", **rest: Any
    ) -> Problem:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
        return Problem(Place(line, column, self.file), path, message, advice, **rest)

    def constant(self, text: str) -> ast.AST | None:
        """The first place where a text is written."""
        every = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return next((node for node in every if node.value == text), None)

    def defined(self, what: object) -> ast.AST | None:
        """Where a function or a class of this file is defined."""
        name = getattr(what, "__name__", "")
        kinds = (ast.FunctionDef, ast.ClassDef)
        every = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return next((node for node in every if node.name == name), None)

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
    """Everything that is wrong with a check's file."""
    source = _parsed(catalog.path(name))
    if isinstance(source, Problem):
        yield source
        return
    yield from _docstring(source, "`nodevet explain` shows it, and `nodevet list` its first line")
    try:
        check = getattr(catalog.module(name), "CHECK", None)
    except CatalogError as error:
        yield _told(source.file, error)
        return
    made = source.assigned("CHECK")
    if not isinstance(check, Check):
        advice = "CHECK = Check(params=Params, reads=(...), judge=judge)"
        yield source.problem(made, "CHECK", "the file defines no check", advice)
        return
    for path in check.reads:
        if wrong := unknown_path(path):
            yield source.problem(source.constant(path) or made, "reads", f"{path}: {wrong}")
    yield from _params(source, check.params, made)
    yield from _signature(source, made, "judge", check.judge, 2, JUDGE)
    if check.asks is not None:
        yield from _signature(source, made, "asks", check.asks, 1, "def asks(params: Params)")
    if check.severities is not None:
        form = "def severities(params: Params)"
        yield from _signature(source, made, "severities", check.severities, 1, form)
    for field, value, kind in (
        ("severity", check.severity, Severity),
        ("area", check.area, Area),
    ):
        if not isinstance(value, kind):
            names = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
            yield source.problem(made, field, f"{value!r} is not one of {names}")


def lint_fix(catalog: Catalog, name: str) -> Iterator[Problem]:
    """Everything that is wrong with a fix's file."""
    source = _parsed(catalog.fix_path(name))
    if isinstance(source, Problem):
        yield source
        return
    yield from _docstring(source, "`nodevet explain` shows it, and `nodevet list` its first line")
    made = source.assigned("FIX")
    try:
        fix = catalog.fix(name)
        catalog.order([name])
    except CatalogError as error:
        yield _told(source.file, error, made)
        return
    if isinstance(fix, Fix):
        yield from _signature(source, made, "plan", fix.plan, 3, PLAN, fix.options)


def _parsed(path: Path) -> _Source | Problem:
    try:
        return _Source(path, ast.parse(source(path)))
    except SyntaxError as error:
        place = Place(error.lineno or 1, error.offset or 1, shown(path))
        return Problem(place, "", f"is not Python: {error.msg}")
    except CatalogError as error:
        return Problem(Place(file=shown(path)), "", str(error).partition(": ")[2])
    except (ValueError, RecursionError) as error:
        return Problem(Place(file=shown(path)), "", f"cannot be read: {error}")


def _docstring(source: _Source, advice: str) -> Iterator[Problem]:
    if not (ast.get_docstring(source.tree) or "").strip():
        message = "the file has no docstring, which is its page"
        at = Place(1, 1, source.file)
        yield Problem(at, "", message, f"say what it is about: {advice}", warning=True)


def _params(source: _Source, params: object, made: ast.AST | None) -> Iterator[Problem]:
    if not (isinstance(params, type) and issubclass(params, CheckParams)):
        yield source.problem(made, "params", "is not a class of CheckParams", "give that class")
        return
    fields = params.__struct_fields__
    for role in ("bare", "whole"):
        name = getattr(params, role)
        if name is not None and name not in fields:
            yield source.problem(
                source.defined(params) or made,
                "params",
                f"{role}: no field is named {name!r}",
                f"the fields are: {', '.join(fields) or 'none'}",
            )
    if problem := unfit_params(params):
        message, _, advice = problem.partition("; ")
        yield source.problem(source.defined(params) or made, "params", message, advice)


def _signature(
    source: _Source,
    made: ast.AST | None,
    name: str,
    called: Callable[..., Any],
    positional: int,
    form: str,
    keywords: tuple[str, ...] = (),
) -> Iterator[Problem]:
    """Whether a function can be called as nodevet calls it."""
    try:
        inspect.signature(called).bind(*range(positional), **dict.fromkeys(keywords, True))
    except TypeError as error:
        at = source.defined(called) or made
        with_options = f", and its options {', '.join(keywords)}" if keywords else ""
        message = f"cannot be called with {positional} values{with_options}: {error}"
        yield source.problem(at, name, message, f"write it as: {form}")
    except ValueError:
        return  # of what is written in C nothing is known


def _told(file: str, error: CatalogError, near: ast.AST | None = None) -> Problem:
    """The error without the place that its text begins with; if none is known, `near`."""
    text = str(error)
    head, _, rest = text.partition(": ")
    message = rest if head.startswith("/") or head.split(":")[0].endswith(".py") else text
    line = error.line or getattr(near, "lineno", 0)
    return Problem(Place(line, error.column or 1, file), "", message)
