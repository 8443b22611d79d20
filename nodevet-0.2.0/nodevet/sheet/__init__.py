"""The report model (`model`) and its renderers: a terminal, Markdown, a page, JSON.

They lay out blocks and know no feature. A renderer is imported when it is first used.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodevet.sheet.model import Sheet

ENDINGS = {"table": ".txt", "json": ".json", "markdown": ".md", "html": ".html"}
"""Every format, and the ending of its files' names."""
FORMATS = tuple(ENDINGS)
RENDERERS = {"table": "terminal", "json": "json", "markdown": "markdown", "html": "page"}
"""The module of each format in this package."""


def render(
    form: str,
    document: Any,
    sheet: "Callable[[], Sheet]",
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """The document for programs, the sheet for people. `form` is one of FORMATS; `colour` and
    `width` (columns) are a terminal's."""
    if form == "json":
        from nodevet.sheet.json import indented

        return indented(document)
    if form == "table":
        from nodevet.sheet import terminal

        return terminal.render(sheet(), colour=colour, width=width)
    return str(import_module(f"nodevet.sheet.{RENDERERS[form]}").render(sheet()))
