"""Reports: one file per format, each a pure `render(run) -> str`.

A format exists because its file does; it is imported when it is asked for. The
files in `HELPERS` are what the formats share.
"""

import inspect
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from nodevet.model import Run
from nodevet.problems import did_you_mean
from nodevet.report.errors import ReportError

HELPERS = frozenset({"ages", "changes", "errors", "fold", "hunks", "spans", "text", "words"})


@cache
def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted({module.name for module in iter_modules(__path__)} - HELPERS))


def module(name: str) -> ModuleType:
    """The module of a format. Raises ReportError for an unknown name."""
    if name not in formats():
        hint = did_you_mean(name, formats(), f"there are {', '.join(formats())}")
        raise ReportError(f"no report format is named {name!r}; {hint}")
    return import_module(f"nodevet.report.{name}")


def options(name: str) -> frozenset[str]:
    """What a format can be told beside the run: `colour`, `width`, `previous`."""
    return frozenset(inspect.signature(module(name).render).parameters) - {"run"}


def render(name: str, run: Run, **given: object) -> str:
    """The run in this format. Raises ReportError for an unknown format or option."""
    if stray := sorted(set(given) - options(name)):
        known = ", ".join(sorted(options(name))) or "none"
        raise ReportError(f"the format {name} has no option {stray[0]}; it has {known}")
    text: str = module(name).render(run, **given)
    return text


def read(text: str | bytes) -> tuple[Run, tuple[str, ...]]:
    """A saved run, json or jsonl, and what the reader must know about it.

    Raises ReportError where it is neither.
    """
    from nodevet.report import json, jsonl

    return jsonl.parse(text) if jsonl.is_jsonl(text) else (json.parse(text), ())
