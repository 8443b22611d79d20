"""Values that a BMC reports, bounded and typed: a BMC may send anything."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from nodevet.base.printable import brief
from nodevet.bmc.errors import BmcError

LONGEST = 400  # characters of a text
MOST_PARTS = 2048
MOST_EVENTS = 256  # the newest ones
FULL_LOG = "the log is full, so the BMC drops new events: save the log, then clear it"
INLET = ("inlet", "intake", "ambient")
CELSIUS = ("Cel", "degrees C")


class RecordFields(dict[str, Any]):
    """The fields of a record; `errors` says why one was not read."""

    def take(self, name: str, read: Callable[[], Any]) -> Any:
        """Read a field."""
        try:
            self[name] = read()
        except BmcError as error:
            self.fail(name, str(error))
        return self[name]

    def fail(self, name: str, why: str) -> None:
        """Record why a field is unknown or incomplete."""
        self[name] = None
        self.setdefault("errors", {})[name] = why


def text(value: Any, *path: str, lower: bool = False) -> str | None:
    """A text as one printable line; None for anything else."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        return None
    line = brief(value, LONGEST).strip()
    return line.lower() if lower else line


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e12 and math.isfinite(value) else None


def inlet(parts: Sequence[RecordFields]) -> float | None:
    """The first temperature that is measured at the air inlet, by its name."""
    at_inlet = (part for part in parts if any(word in part["name"].lower() for word in INLET))
    return next((part["reading"] for part in at_inlet if part["unit"] in CELSIUS), None)


def renamed(parts: Sequence[RecordFields]) -> list[RecordFields]:
    """The parts. If parts of one kind share a name, all but the first get a number behind it."""
    seen: Counter[tuple[str, str]] = Counter()
    named = []
    for part in parts[:MOST_PARTS]:
        key = (part["kind"], part["name"])
        seen[key] += 1
        name = f"{part['name']} #{seen[key]}" if seen[key] > 1 else part["name"]
        named.append(RecordFields({**part, "name": name}))
    return named
