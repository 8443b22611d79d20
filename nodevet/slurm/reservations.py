"""Parses maintenance reservations from `scontrol show reservation -o`. Pure."""

import re
from collections.abc import Iterator

from nodevet.base.nodeset import NodesetError, expand

ROW = re.compile(r"^ReservationName=(\S+)(.*)", re.M)
KEY = re.compile(r" (Nodes|Flags|State)=(\S*)")


def maintenances_of(node: str, text: str) -> list[str]:
    """The names of the maintenance reservations that hold this node now.

    >>> row = "ReservationName={} Nodes=gpu[1-2] NodeCnt=2 Flags={},SPEC_NODES State={}\\n"
    >>> rows = [("a", "MAINT", "ACTIVE"), ("b", "MAINT", "INACTIVE"), ("c", "DAILY", "ACTIVE")]
    >>> maintenances_of("gpu2", "".join(row.format(*words) for words in rows))
    ['a']
    """
    return [name for name, values in _rows(text) if _is_active(values) and _has(values, node)]


def _rows(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    for name, rest in ROW.findall(text):
        yield name, dict(KEY.findall(rest))


def _is_active(values: dict[str, str]) -> bool:
    return "MAINT" in values.get("Flags", "").split(",") and values.get("State") == "ACTIVE"


def _has(values: dict[str, str], node: str) -> bool:
    try:
        return node in expand(values.get("Nodes", ""))
    except NodesetError:  # (null): it holds licenses, not nodes
        return False
