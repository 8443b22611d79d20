"""Values that many hosts have in common, held once."""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1024)
def shared(value: Any) -> Any:
    """An equal value that was shared before, or this one. Pass only values of one type."""
    return value
