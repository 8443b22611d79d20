"""The hunks of a unified diff, in time that is linear in its lines."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

Pair = tuple[list[str], list[str]]  # corresponding lines: of the old side, of the new one
SMALL = 64  # lines of a pair that difflib compares


class _Piece(NamedTuple):
    """Lines that are alike, or old lines and the new ones in their place."""

    alike: bool
    old: list[str]
    new: list[str]


def hunks(pairs: Iterable[Pair], context: int, start: tuple[int, int] = (0, 0)) -> Iterator[str]:
    """The lines of all hunks. `start`: the number of lines before the first pair, on each side."""
    before, after = start
    body: list[str] = []
    sizes = [0, 0]
    quiet: list[str] = []  # alike since the last difference

    def head() -> str:
        ends = (_span(before, sizes[0]), _span(after, sizes[1]))
        return f"@@ -{ends[0]} +{ends[1]} @@"

    for piece in _merged(pairs):
        if piece.alike:
            quiet += piece.old
            continue
        if body and len(quiet) > 2 * context:
            body += [f" {line}" for line in quiet[:context]]
            sizes = [size + context for size in sizes]
            yield head()
            yield from body
            before, after = before + sizes[0], after + sizes[1]
            quiet = quiet[context:]
            body, sizes = [], [0, 0]
        if not body:
            skipped = max(0, len(quiet) - context)
            before, after, quiet = before + skipped, after + skipped, quiet[skipped:]
        body += [f" {line}" for line in quiet]
        body += [f"-{line}" for line in piece.old]
        body += [f"+{line}" for line in piece.new]
        sizes[0] += len(quiet) + len(piece.old)
        sizes[1] += len(quiet) + len(piece.new)
        quiet = []
    if body:
        tail = quiet[:context]
        sizes = [size + len(tail) for size in sizes]
        yield head()
        yield from body
        yield from (f" {line}" for line in tail)


def _span(before: int, size: int) -> str:
    """A range of lines as diff(1) writes it."""
    if size == 1:
        return f"{before + 1}"
    return f"{before + 1 if size else before},{size}"


def _merged(pairs: Iterable[Pair]) -> Iterator[_Piece]:
    """The pieces of all pairs; successive pieces of a kind are merged."""
    last: _Piece | None = None
    for pair in pairs:
        for piece in _pieces(*pair):
            if last and last.alike == piece.alike:
                last.old.extend(piece.old)
                last.new.extend(piece.new)
                continue
            if last:
                yield last
            last = _Piece(piece.alike, list(piece.old), list(piece.new))
    if last:
        yield last


def _pieces(old: list[str], new: list[str]) -> Iterator[_Piece]:
    if old == new:
        if old:
            yield _Piece(True, old, new)
    elif len(old) + len(new) <= SMALL:
        for tag, low, high, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
            yield _Piece(tag == "equal", old[low:high], new[start:end])
    else:
        head = _shared(old, new)
        tail = _shared(old[head:][::-1], new[head:][::-1])
        ends = len(old) - tail, len(new) - tail
        for piece in (
            _Piece(True, old[:head], new[:head]),
            _Piece(False, old[head : ends[0]], new[head : ends[1]]),
            _Piece(True, old[ends[0] :], new[ends[1] :]),
        ):
            if piece.old or piece.new:
                yield piece


def _shared(old: list[str], new: list[str]) -> int:
    """The number of lines that both begin with."""
    ends = zip(old, new, strict=False)
    return next((place for place, (a, b) in enumerate(ends) if a != b), min(len(old), len(new)))


def labelled_hunks(parts: Iterable[tuple[str, list[Pair]]], context: int) -> Iterator[str]:
    """The hunks of (label, pairs of corresponding lines), as one document on each side; each hunk
    has its label behind the `@@`."""
    before = after = 0
    for label, pairs in parts:
        for line in hunks(pairs, context, (before, after)):
            yield f"{line} {label}" if line.startswith("@@") else line
        before += sum(len(old) for old, _ in pairs)
        after += sum(len(new) for _, new in pairs)
