"""The whole result as one JSON document; see `nodevet.remedy.result` for its shape."""

import msgspec

from nodevet.remedy.result import Result
from nodevet.report.json import encode


def render(result: Result) -> str:
    """Indented, with a newline at the end."""
    return msgspec.json.format(encode(result), indent=1) + "\n"
