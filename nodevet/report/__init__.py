"""Reports: one file per format, each of which renders a run of checks and a run of fixes.

A format exists because its file does; it is imported when it is asked for, and so is all else:
the help of a command names the formats. It has `ENDING`, what
the name of its file ends in; `render_checks(run, ...)` and `render_fixes(result)`, pure; if a
run of checks can be written host by host, its `pieces_of_checks(run)`; and if it has an exit code
of its own on standard output, `exit_code(document)`. `parts` is what formats share.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nodevet.base.modules import names_in
from nodevet.sheet.errors import ReportError

if TYPE_CHECKING:
    from nodevet.fixing.result import Result
    from nodevet.model import Run


@cache
def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(names_in(__path__))


def module(name: str) -> ModuleType:
    """The module of a format. Raises ReportError for an unknown name."""
    require(name)
    return _imported(name)


def require(name: str, known: Sequence[str] = ()) -> None:
    """Raises ReportError for a format that is not among the `known`, or among all if none are
    named."""
    among = sorted(known) or formats()
    if name in among:
        return
    listed = ", ".join(among)
    if name in formats():
        raise ReportError(f"the format {name} does not render this; these do: {listed}")
    from nodevet.base.problems import did_you_mean

    hint = did_you_mean(name, among, f"there are {listed}")
    raise ReportError(f"no report format is named {name!r}; {hint}")


def _imported(name: str) -> ModuleType:
    return import_module(f"nodevet.report.{name}")


def endings() -> Mapping[str, str]:
    """Every format, with what the name of its file ends in."""
    return {name: module(name).ENDING for name in formats()}


def options(name: str) -> frozenset[str]:
    """What a format can be told of a run of checks: `colour`, `width`, `quiet`."""
    return frozenset(inspect.signature(module(name).render_checks).parameters) - {"run"}


def fix_options(name: str) -> frozenset[str]:
    """What a format can be told of a run of fixes: `contents`, a `nodevet.resource.Contents`."""
    return frozenset(inspect.signature(module(name).render_fixes).parameters) - {"result"}


def streamed(name: str) -> bool:
    """Whether the format can be written host by host, while a run of checks goes on."""
    return hasattr(module(name), "head")


def render(name: str, document: "Run | Result", **given: Any) -> str:
    """The document in this format. Raises ReportError for an unknown format or option."""
    from nodevet.model import Run

    fixes = not isinstance(document, Run)
    known = fix_options(name) if fixes else options(name)
    if stray := sorted(set(given) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise ReportError(f"the format {name} has no option {stray[0]}; it has {listed}")
    found = module(name)
    return str((found.render_fixes if fixes else found.render_checks)(document, **given))


def pieces(name: str, document: "Run | Result", **given: Any) -> Iterator[str]:
    """As `render`, piece by piece: of a format that has `pieces_of_checks`, in little room."""
    from nodevet.model import Run

    streams = getattr(module(name), "pieces_of_checks", None)
    if streams is None or not isinstance(document, Run):
        yield render(name, document, **given)
    else:
        yield from streams(document)


def exit_code(name: str, document: "Run | Result") -> int:
    """The exit code of a command that prints this format: the run's own, or the format's."""
    own = getattr(module(name), "exit_code", None)
    return int(own(document) if own else document.exit_code)


def read(text: str | bytes) -> "tuple[Run, tuple[str, ...]]":
    """A saved run of checks, json or jsonl, and what the reader must know about it.

    Raises ReportError if it is neither.
    """
    from nodevet.vet.formats import json, jsonl

    return jsonl.parse(text) if jsonl.is_jsonl(text) else (json.parse(text), ())
