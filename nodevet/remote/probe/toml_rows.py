"""The TOML of container engines' configurations: tables, strings, numbers, booleans.

The node's Python may be older than tomllib. Other forms are skipped, so a caller must not conclude
anything if a file mentions a word that no row has.
"""

from nodevet.remote.probe.files import quote, text_lines
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

HEADER = Pattern(r"\[\[?(.*?)\]\]?\s*(?:#.*)?\Z")
PAIR = Pattern(
    r"((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=\s*(.*)\Z"
)
PART = Pattern(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|\Z)")
STRING = Pattern(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")


def key_parts(text: str) -> "tuple[str, ...]":
    """
    >>> key_parts('plugins."io.containerd.grpc.v1.cri".containerd')
    ('plugins', 'io.containerd.grpc.v1.cri', 'containerd')
    """
    parts, position = [], 0
    while position < len(text):
        match = PART.match(text, position)
        if match is None or match.end() == position:
            return ()
        parts.append(next(group for group in match.groups() if group is not None))
        position = match.end()
    return tuple(parts)


def rows(text: str) -> "Iterator[tuple[tuple[str, ...], str | list[str]]]":
    """(key with its table, value) of every row: a list of strings, or a text; "" for a table's
    header.

    >>> list(rows("b = true\\n[a.'c.d']\\ne = ['f', # g\\n 'h']"))
    [(('b',), 'true'), (('a', 'c.d'), ''), (('a', 'c.d', 'e'), ['f', 'h'])]
    """
    table: "tuple[str, ...]" = ()
    open_key: "tuple[str, ...] | None" = None
    parts: "list[str]" = []
    for line in text_lines(text):
        row = line.strip()
        if open_key is not None:
            parts += strings(row)
            if "]" in STRING.sub("", row).split("#", 1)[0]:
                yield open_key, parts
                open_key = None
            continue
        if not row or row.startswith("#"):
            continue
        header = HEADER.match(row) if row.startswith("[") else None
        if header:
            table = key_parts(header.group(1))
            yield table, ""
            continue
        pair = PAIR.match(row)
        if pair is None:
            continue
        key, value = table + key_parts(pair.group(1)), pair.group(2).strip()
        if value.startswith("["):
            parts = strings(value)
            if "]" in STRING.sub("", value).split("#", 1)[0]:
                yield key, parts
            else:
                open_key = key
            continue
        quoted = STRING.match(value)
        yield key, strings(value)[0] if quoted else value.split("#", 1)[0].strip()


def single(value: "str | list[str]") -> str:
    """A single value. Raises ValueError for a list."""
    if isinstance(value, list):
        raise ValueError("a list where one value is expected: {}".format(quote(str(value))))
    return value


def strings(text: str) -> "list[str]":
    """The strings of a row, up to a comment."""
    texts: "list[str]" = []
    position = 0
    while True:
        match = STRING.search(text, position)
        if match is None or "#" in text[position : match.start()]:
            return texts
        texts.append(match.group(1) if match.group(1) is not None else match.group(2))
        position = match.end()


def mentions(text: str, word: str) -> bool:
    """Whether a row that is not a comment contains a word."""
    return any(word in row for row in text_lines(text) if not row.lstrip().startswith("#"))
