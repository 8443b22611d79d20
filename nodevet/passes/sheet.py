"""A pass as a sheet. Pure."""

from collections.abc import Mapping
from datetime import datetime, timezone

from nodevet.base.printable import plain
from nodevet.passes.document import parse, split
from nodevet.sheet.model import FactBlock, Sheet, TextBlock
from nodevet.sheet.text import count

TIMES = ("vetted", "expires")
Shown = Mapping[str, str | int | list[str]]


def pass_fields(data: bytes) -> Shown:
    """What a pass says, for people and JSON: one value or a list, times as ISO 8601. Raises
    PassError."""
    values = parse(split(data)[0])
    result: dict[str, str | int | list[str]] = {}
    for name, texts in values.items():
        if name in ("gpu", "baseline"):
            result[f"{name}s"] = texts
        elif name in TIMES:
            result[name] = _time(int(texts[0]))
        else:
            result[name] = int(texts[0]) if name == "uptime" else texts[0]
    return result


def pass_sheet(values: Shown, why: str, *, is_valid: bool) -> Sheet:
    """`why`: what `nodevet pass verify` says of it."""
    rows = tuple((name, _text(name, value)) for name, value in values.items())
    return Sheet(
        title=f"pass of {plain(str(values['host']))}",
        kind="pass",
        blocks=(
            FactBlock(rows=rows),
            TextBlock(text=plain(why), tone="ok" if is_valid else "fail"),
        ),
    )


def _text(name: str, value: str | int | list[str]) -> str:
    if name == "gpus" and isinstance(value, list):
        return ", ".join([count(len(value), "GPU"), *map(plain, value)])
    if name == "uptime":
        return f"{value} s when it was vetted"
    return ", ".join(map(plain, value)) if isinstance(value, list) else plain(str(value))


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
