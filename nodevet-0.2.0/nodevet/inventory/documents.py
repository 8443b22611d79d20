"""Read an inventory's text, bounded and UTF-8, from a regular file."""

import stat
from pathlib import Path

from nodevet.base.problems import Place, Problem
from nodevet.inventory.errors import InventoryError, inventory_error

MAX_BYTES = 16 * 2**20
"""100,000 hosts with every setting need less."""


def read_text(path: Path) -> str:
    """The text of a file. Raises InventoryError."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            problem = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
            raise inventory_error(path, problem, "name a file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        text = "there is no such file"
        raise inventory_error(path, text, "check the path") from None
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}"
        raise inventory_error(path, text) from None
    except ValueError:  # a NUL in the name
        raise inventory_error(path, "not a file name") from None
    return decode(raw, str(path))


def decode(raw: bytes, name: str) -> str:
    """The text of an inventory's bytes. Raises InventoryError."""
    if len(raw) > MAX_BYTES:
        text = f"larger than {MAX_BYTES // 2**20} MiB, which no inventory needs"
        raise inventory_error(name, text)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        place = Place(line, column, name)
        raise InventoryError([Problem(place, "", "not UTF-8 text", "save it as UTF-8")]) from None
