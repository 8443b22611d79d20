"""Formats of a run of checks. Some show a sheet; each file here is a format that has the data.

The name of the file is the name of the format, and nodevet imports it only when it is needed. It
has `pieces(run)`, and as needed: `head`, `line` and `tail` if nodevet can write it host by host
during the run; `COUNTS = True` if it only counts findings that passed, unless `--all` is given;
`exit_code(run)` if it has its own exit codes on standard output; `IN_TEXT = True` if its reader
takes the verdict from the text and needs exit code 0 for every verdict.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nodevet.base.features import names_in
from nodevet.sheet import ENDINGS
from nodevet.sheet.errors import ReportError

if TYPE_CHECKING:
    from nodevet.model import Run


@cache
def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted({*ENDINGS, *names_in(__path__)}))


BY_ENDING = {
    **{ending: name for name, ending in ENDINGS.items()},
    ".htm": "html",
    ".jsonl": "jsonl",
    ".xml": "junit",
    ".prom": "prometheus",
    ".diff": "diff",
    ".patch": "diff",
}


def format_of_file(path: str) -> str | None:
    """The format for the ending of a file's name, or None."""
    return BY_ENDING.get(Path(path).suffix)


def require(name: str, known: Sequence[str] = ()) -> None:
    """Raises ReportError for a format that is not one of `known`, by default all."""
    among = sorted(known) or formats()
    if name in among:
        return
    listed = ", ".join(among)
    if name in formats():
        raise ReportError(f"the format {name} does not render this; these do: {listed}")
    from nodevet.base.problems import did_you_mean

    hint = did_you_mean(name, among, f"there are {listed}")
    raise ReportError(f"no report format is named {name!r}; {hint}")


def has_module(name: str) -> bool:
    """Whether a format has the data, and does not show the sheet. Raises ReportError for an unknown
    name."""
    require(name)
    return name in names_in(__path__)


def module(name: str) -> ModuleType:
    """The module of a format that has one."""
    return import_module(f"{__name__}.{name}")


def streamed(name: str) -> bool:
    """Whether nodevet can write the format host by host, during a run."""
    return has_module(name) and hasattr(module(name), "head")


def counts(form: ModuleType) -> bool:
    """Whether the format only counts findings that passed, unless `--all` asks for them."""
    return bool(getattr(form, "COUNTS", False))


def render(name: str, run: "Run", **shown: Any) -> str:
    """The run in this format; see `pieces`."""
    return "".join(pieces(name, run, **shown))


def pieces(
    name: str, run: "Run", *, colour: bool = False, width: int | None = None, **view: bool
) -> Iterator[str]:
    """The run, piece by piece if the format has that. `colour`, `width` (columns) and `view`, the
    fields of a `RunView`, are for formats that show the sheet; `everything` is for all. Raises
    ReportError for an unknown name."""
    if has_module(name):
        form = module(name)
        if counts(form) and not view.get("everything"):
            from nodevet.vet.findings.counted import with_counts

            run = with_counts(run)
        yield from form.pieces(run)
        return
    from nodevet.sheet import render as rendered
    from nodevet.vet.check_sheet import MEDIA, RunView, check_sheet

    sheet = check_sheet(run, MEDIA[name], RunView(**view))
    yield rendered(name, None, lambda: sheet, colour=colour, width=width)


def exit_code(name: str, run: "Run") -> int:
    """The exit code of a command that prints this format: the format's own, or the run's."""
    if has_verdict_in_text(name):
        return 0
    own = getattr(module(name), "exit_code", None) if has_module(name) else None
    return int(own(run) if own else run.exit_code)


def has_verdict_in_text(name: str) -> bool:
    """Whether the reader of the format takes the verdict from the text, and needs exit code 0."""
    return has_module(name) and bool(getattr(module(name), "IN_TEXT", False))


def is_state(name: str) -> bool:
    """Whether a program reads the format as the state of the hosts now."""
    own_code = has_module(name) and hasattr(module(name), "exit_code")
    return own_code or has_verdict_in_text(name)


def read(text: str | bytes) -> "tuple[Run, tuple[str, ...]]":
    """A saved run of checks, json or jsonl, and notes about it for the reader.

    Raises ReportError if the text is neither.
    """
    from nodevet.vet.formats import json, jsonl

    return jsonl.parse(text) if jsonl.is_jsonl(text) else (json.parse(text), ())
