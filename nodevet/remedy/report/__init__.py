"""The report of a run of `apply` or `rollback`: every node, what was done, who approved it.

One file per format, with the names that the formats of `nodevet.report` have, each a pure
`render(result) -> str`; `words` is what they share. Text from nodes is made safe to print.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodevet.remedy.result import Result

ENDINGS: Mapping[str, str] = {
    "table": ".txt",
    "diff": ".diff",
    "html": ".html",
    "json": ".json",
    "jsonl": ".jsonl",
    "junit": ".junit.xml",
    "markdown": ".md",
    "nagios": ".nagios",
    "prometheus": ".prom",
}
"""Every format, with what the name of its file ends in."""


def render(result: "Result", format: str = "table") -> str:
    """The report in one of the formats. Raises KeyError for another."""
    if format not in ENDINGS:
        raise KeyError(format)
    text: str = import_module(f"nodevet.remedy.report.{format}").render(result)
    return text
