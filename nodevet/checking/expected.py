"""Expectations with one pattern or several: `6.8.*` or `[5.15.0-105-*, 6.8.*]`; and ranges."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

Words = str | Annotated[tuple[str, ...], Meta(min_length=1)]
"""One pattern or several; `*` and `?` stand for any text, as in a shell."""


def patterns_in(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words


def matches(text: str, words: Words) -> bool:
    """
    >>> matches("5.15.0-105-generic", "5.15.0-*"), matches("22.04", ("20.04", "22.04"))
    (True, True)
    """
    return any(fnmatchcase(text, pattern) for pattern in patterns_in(words))


def words_text(words: Words) -> str:
    return " or ".join(patterns_in(words))


def span(minimum: float | str | None, maximum: float | str | None) -> str:
    """
    >>> span(1, 5), span(2, None), span(None, "10%")
    ('1 to 5', 'at least 2', 'at most 10%')
    """
    shown = [f"{end:g}" if isinstance(end, float) else end for end in (minimum, maximum)]
    if minimum is None:
        return f"at most {shown[1]}"
    return f"at least {shown[0]}" if maximum is None else f"{shown[0]} to {shown[1]}"


def is_within(value: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def join_parts(parts: Iterable[str]) -> str:
    """The parts that are not empty, as one sentence."""
    return "; ".join(filter(None, parts))
