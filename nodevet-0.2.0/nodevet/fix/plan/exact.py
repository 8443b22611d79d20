"""What a person signs, so that no two values look alike. Pure."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodevet.base.printable import brief, is_visible, plain
from nodevet.model import show

_BARE = re.compile(r"(?!\s)[^\x00-\x1f\"\\,:{}\[\]]*(?<!\s)")
"""Text that cannot be read as a value of another type, or as several values."""
_OWN = frozenset("…–—→·×≤≥°’")  # characters of nodevet's own sentences


def exact(value: Any) -> str:
    """A value on one printable line, like `show`; what could be read as another value is in
    quotes or brackets.

    >>> exact(700), exact("700"), exact(["a", "b"]), exact("a, b"), exact({"x": ["a"], "y": None})
    ('700', '"700"', 'a, b', '"a, b"', 'x: [a], y: null')
    """
    if isinstance(value, (list, tuple)) and len(value) > 1:
        return ", ".join(map(_inner, value))
    if isinstance(value, Mapping) and value:
        return _pairs(value)
    return "none" if value == [] else _inner(value)


def _inner(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return plain(value) if _is_bare(value) else plain(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return f"{{{_pairs(value)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inner, value))}]"
    return repr(value) if isinstance(value, float) else show(value)


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{_inner(key)}: {_inner(item)}" for key, item in value.items())


def _is_bare(text: str) -> bool:
    if text in ("", "on", "off", "none", "null") or not _BARE.fullmatch(text):
        return False
    try:
        float(text)
    except ValueError:
        return is_visible(text)
    return False


def foreign_words(document: Any) -> tuple[str, ...]:
    """The words of a document that are not ASCII, each once, with their characters: some look like
    others. Words that mix both come first.

    >>> foreign_words({"unit": "j\\u043eb.service"})
    ('j\u043eb.service (U+043E CYRILLIC SMALL LETTER O)',)
    """
    words = dict.fromkeys(
        word
        for text in _texts(document)
        if not text.isascii()
        for word in text.split()
        if not set(word) <= _OWN and not word.isascii()
    )
    return tuple(map(_described, sorted(words, key=lambda word: not _is_mixed(word))))


def _is_mixed(word: str) -> bool:
    return any(character.isascii() and character.isalnum() for character in word)


def _described(word: str) -> str:
    characters = dict.fromkeys(each for each in word if not each.isascii() and each not in _OWN)
    names = (f"U+{ord(each):04X} {unicodedata.name(each, '')}".rstrip() for each in characters)
    return f"{brief(word)} ({brief(', '.join(names))})"


def with_blanks(document: Any) -> tuple[str, ...]:
    """The texts that begin or end with a blank, in quotes."""
    return tuple(
        dict.fromkeys(brief(exact(text)) for text in _texts(document) if text != text.strip(" "))
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts_of(value)
        yield from _texts_of(value.values())
    elif isinstance(value, (list, tuple)):
        yield from _texts_of(value)


def _texts_of(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield from _texts(value)


def unknown_key(document: Any, known: Any) -> str:
    """The first key of a JSON document that is not among the known ones; "" if there is none. A
    key without a value says nothing."""
    if isinstance(document, dict) and isinstance(known, dict):
        for key, value in document.items():
            if key not in known and value is not None:
                return str(key)
        pairs = ((value, known.get(key)) for key, value in document.items())
    elif isinstance(document, list) and isinstance(known, (list, tuple)):
        pairs = ((one, other) for one, other in zip(document, known, strict=False))
    else:
        return ""
    return next(filter(None, (unknown_key(one, other) for one, other in pairs)), "")
