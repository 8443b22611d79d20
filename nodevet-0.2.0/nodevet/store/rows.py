"""What goes into rows: ids, and text that a database accepts (valid UTF-8 without NUL)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, func, insert, select

from nodevet.store import schema as t
from nodevet.store.records.model import PartKind

OF_ANY_KIND = t.part.c.kind.in_([kind.value for kind in PartKind])
"""Always true: the index that finds a part's id begins with its kind."""


def next_id(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.max(table.c.id))).scalar() or 0) + 1


def add_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows with the next ids."""
    first = next_id(connection, table)
    numbered = [{"id": first + index, **row} for index, row in enumerate(rows)]
    if numbered:
        connection.execute(insert(table), numbered)


def host_id(connection: Connection, name: str) -> int:
    """The id of a host; a new row if it was never visited."""
    query = select(t.host.c.id).where(t.host.c.name == plain(name))
    number = connection.execute(query).scalar()
    if number is None:
        number = next_id(connection, t.host)
        connection.execute(insert(t.host).values(id=number, name=plain(name)))
    return int(number)


def name_rows(part: int, name: str, others: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of table `part_name` for a part: its id, and its other names."""
    own = plain(name).lower()
    for text in {own, *(plain(other).lower() for other in others)}:
        yield {"name": text, "part": part, "is_id": text == own}


def plain(text: str) -> str:
    """A text in which characters that PostgreSQL refuses are spelled out."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def encoded(value: Any) -> bytes:
    """JSON of a value, in which invalid Unicode is spelled out."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, OverflowError):
        return msgspec.json.encode(_plain(msgspec.to_builtins(value, enc_hook=repr)))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
