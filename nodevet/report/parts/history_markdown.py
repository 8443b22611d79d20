"""A sheet of the history as Markdown: what others wrote stands in code spans. Pure."""

from nodevet.report.parts.history_sheet import HistoryChart, HistoryTable, Sheet
from nodevet.report.parts.history_table import bars
from nodevet.report.parts.spans import cell, code, table


def document(sheet: Sheet) -> str:
    lines = [f"# {code(sheet.title)}", ""]
    if sheet.facts:
        lines += [" · ".join(map(code, sheet.facts)), ""]
    if sheet.about:
        lines += [*table(("", ""), [(cell(key), cell(value)) for key, value in sheet.about])]
    for part in sheet.parts:
        lines += [f"## {part.title}", ""] if part.title else []
        lines += _chart_block(part) if isinstance(part, HistoryChart) else _table(part)
    lines += [code(sheet.end), ""] if sheet.end else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _table(found: HistoryTable) -> list[str]:
    several = max(map(len, found.rows), default=len(found.heads))
    heads = found.heads or ("",) * several
    rows = [tuple(cell(each.text) for each in row) for row in found.rows]
    return [*table(heads, rows), *([found.note, ""] if found.note else [])]


def _chart_block(found: HistoryChart) -> list[str]:
    return ["```text", *bars(found), "```", ""]
