"""The report model (`model`) and its renderers: a terminal, Markdown, a page, JSON.

They lay out blocks and know no feature. Each is imported when it is asked for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodevet.sheet.model import Sheet

ENDINGS = {"table": ".txt", "json": ".json", "markdown": ".md", "html": ".html"}
"""Every format, and how the name of its file ends."""
FORMATS = tuple(ENDINGS)
RENDERERS = {"table": "terminal", "json": "json", "markdown": "markdown", "html": "page"}
"""The module here of each format."""


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
    if form == "markdown":
        from nodevet.sheet import markdown

        return markdown.render(sheet())
    if form == "html":
        from nodevet.sheet import page

        return page.render(sheet())
    from nodevet.sheet import terminal

    return terminal.render(sheet(), colour=colour, width=width)
