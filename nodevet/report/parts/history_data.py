"""What the page of a sheet of the history shows. Pure."""

from typing import Any

from nodevet.report.parts import history_chart
from nodevet.report.parts.history_sheet import HistoryChart, Sheet

TAGS = ("fail", "warning", "ok", "unknown", "waived", "unreached")


def data(sheet: Sheet) -> dict[str, Any]:
    """What the template is told."""
    return {
        "sheet": sheet,
        "size": history_chart,
        "tags": TAGS,
        "parts": [
            (part, history_chart.drawn(part) if isinstance(part, HistoryChart) else None)
            for part in sheet.parts
        ],
    }
