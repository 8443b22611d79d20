"""Write values as YAML on one line."""

import json
import re
from collections.abc import Mapping

from nodevet.document.scalars import TrapError, resolve
from nodevet.model import Value

_BARE = re.compile(r"[A-Za-z_/~.][A-Za-z0-9_./%+-]*")


def flow(value: Value) -> str:
    """A value on one line of YAML, with the same meaning for nodevet and every other reader."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar(key)}: {flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(flow, value))}]"
    return scalar(value)


def scalar(value: Value) -> str:
    """A plain word if YAML reads it as this value, else double quotes."""
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and _is_text(value) else _quoted(value)
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return json.dumps(value)


def _quoted(text: str) -> str:
    """Text in double quotes, with escapes for all but printable ASCII: YAML 1.2, 5.7."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter <= "~":
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"


def _is_text(word: str) -> bool:
    try:
        return resolve(word) == word
    except TrapError:
        return False
