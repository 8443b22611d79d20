"""Formats of a run of fixes: those of a sheet, and a module for each that carries its data.

Each module here is a format of that name, imported on use. It has `ENDING` (of its file's name),
`render(result, contents)`, where `contents` are those of files, by SHA-256, and, if it has an exit
code of its own on standard output, `exit_code(result)`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from nodevet import sheet
from nodevet.base.features import names_in

if TYPE_CHECKING:
    from nodevet.fixing.result import Result


class FixRun(NamedTuple):
    """What a report of a run needs besides its result."""

    contents: Callable[[str], bytes | None] = lambda sha256: None  # of files
    folder: str = "RUN"  # as a word of a command line
    inventories: Sequence[str] = ("INVENTORY",)  # as commands name them


@cache
def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted({*sheet.FORMATS, *names_in(__path__)}))


def endings() -> Mapping[str, str]:
    """Every format -> the ending of its file's name."""
    return {**sheet.ENDINGS, **{name: _module(name).ENDING for name in names_in(__path__)}}


def render(
    name: str,
    result: "Result",
    run: FixRun = FixRun(),  # noqa: B008  (frozen)
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """The result in one of `formats()`. `colour` and `width` (columns) are a terminal's."""
    if name not in sheet.FORMATS:
        return str(_module(name).render(result, run.contents))
    from nodevet.fix.result_sheet import result_sheet

    return sheet.render(
        name,
        result,
        lambda: result_sheet(result, *run, page=name == "html"),
        colour=colour,
        width=width,
    )


def exit_code(name: str, result: "Result") -> int:
    """The exit code of a command that prints this format: the format's own, or the run's."""
    format_code = None if name in sheet.FORMATS else getattr(_module(name), "exit_code", None)
    return int(format_code(result) if format_code else result.exit_code)


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")
