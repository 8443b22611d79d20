"""The hunks of a unified diff, in a time that grows with its lines and not with their square."""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

Pair = tuple[list[str], list[str]]  # what answers one another: lines of one side, of the other
SMALL = 64  # lines of a pair that are compared each with each


class _Piece(NamedTuple):
    """Lines that are alike, or those of one side in place of those of the other."""

    alike: bool
    one: list[str]
    other: list[str]


def hunks(pairs: Iterable[Pair], context: int, start: tuple[int, int] = (0, 0)) -> Iterator[str]:
    """`@@` lines and what is below them. `start`: lines before the first, on either side."""
    before, after = start
    body: list[str] = []
    sizes = [0, 0]
    quiet: list[str] = []  # alike since the last difference

    def head() -> str:
        ends = (_span(before, sizes[0]), _span(after, sizes[1]))
        return f"@@ -{ends[0]} +{ends[1]} @@"

    for piece in _merged(pairs):
        if piece.alike:
            quiet += piece.one
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
        body += [f"-{line}" for line in piece.one]
        body += [f"+{line}" for line in piece.other]
        sizes[0] += len(quiet) + len(piece.one)
        sizes[1] += len(quiet) + len(piece.other)
        quiet = []
    if body:
        tail = quiet[:context]
        sizes = [size + len(tail) for size in sizes]
        yield head()
        yield from body
        yield from (f" {line}" for line in tail)


def _span(before: int, size: int) -> str:
    """A range of lines as diff(1) has it."""
    if size == 1:
        return f"{before + 1}"
    return f"{before + 1 if size else before},{size}"


def _merged(pairs: Iterable[Pair]) -> Iterator[_Piece]:
    """The pieces of all pairs, those of a kind that follow one another as one."""
    last: _Piece | None = None
    for pair in pairs:
        for piece in _pieces(*pair):
            if last and last.alike == piece.alike:
                last.one.extend(piece.one)
                last.other.extend(piece.other)
                continue
            if last:
                yield last
            last = _Piece(piece.alike, list(piece.one), list(piece.other))
    if last:
        yield last


def _pieces(one: list[str], other: list[str]) -> Iterator[_Piece]:
    if one == other:
        if one:
            yield _Piece(True, one, other)
    elif len(one) + len(other) <= SMALL:
        for tag, low, high, start, end in SequenceMatcher(None, one, other, False).get_opcodes():
            yield _Piece(tag == "equal", one[low:high], other[start:end])
    else:
        head = _shared(one, other)
        tail = _shared(one[head:][::-1], other[head:][::-1])
        ends = len(one) - tail, len(other) - tail
        for piece in (
            _Piece(True, one[:head], other[:head]),
            _Piece(False, one[head : ends[0]], other[head : ends[1]]),
            _Piece(True, one[ends[0] :], other[ends[1] :]),
        ):
            if piece.one or piece.other:
                yield piece


def _shared(one: list[str], other: list[str]) -> int:
    """How many lines both begin with."""
    ends = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(ends) if a != b), min(len(one), len(other)))


def labelled(parts: Iterable[tuple[str, list[Pair]]], context: int) -> Iterator[str]:
    """The hunks of (label, pairs of lines that answer one another), one document each side, each
    hunk with its label behind the `@@`."""
    before = after = 0
    for label, pairs in parts:
        for line in hunks(pairs, context, (before, after)):
            yield f"{line} {label}" if line.startswith("@@") else line
        before += sum(len(one) for one, _ in pairs)
        after += sum(len(other) for _, other in pairs)
