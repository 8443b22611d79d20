"""What a command of the history found, in a format that was asked for. Pure."""

from typing import Any

import msgspec

from nodevet.report.parts.history_sheet import Sheet


def rendered(
    name: str, document: Any, sheet: Sheet, *, colour: bool = False, width: int | None = None
) -> str:
    """`document` for programs, its `sheet` for people."""
    if name == "json":
        text = msgspec.json.encode({"kind": sheet.kind, **msgspec.to_builtins(document)})
        return msgspec.json.format(text, indent=1).decode() + "\n"
    if name == "markdown":
        from nodevet.report.parts.history_markdown import document as markdown

        return markdown(sheet)
    if name == "html":
        from nodevet.report.html import render_sheet

        return render_sheet(sheet)
    from nodevet.report.parts.history_table import table

    return table(sheet, colour=colour, width=width)
