"""Nodesets in ClusterShell's notation: `gpu[001-128]`, `a,b`, `gpu[1-8]!gpu3`, `@group`.

nodevet counts the hosts before it expands the names, so `n[1-999999999]` costs nothing. Pure.
"""

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from nodevet.base.host_names import name_problem
from nodevet.base.printable import brief

LOCAL = "@local"
"""The operand that stands for this machine."""

MAX_HOSTS = 100_000
"""More than this is a typo, not a fleet."""

OPERATORS = ",!&^"
MAX_DIGITS = 12
RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*(?:/\s*(\d+)\s*)?)?")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")
NameSet = dict[str, None]  # a set that keeps its order


class NodesetError(ValueError):
    """The text is not a nodeset. `column` counts from 1 within the text."""

    def __init__(self, text: str, column: int = 1) -> None:
        super().__init__(text)
        self.column = column


class Term(NamedTuple):
    """One operand of a nodeset, and its operator with the operands to its left."""

    operator: str  # "," union, "!" difference, "&" intersection, "^" either but not both
    text: str
    column: int


def terms(text: str) -> Iterator[Term]:
    """The operands, left to right; no operator binds tighter than another.

    A comma before another operator only separates: `@a,!b` is `@a!b`.
    """
    operator, start, depth = "", 0, 0
    for end, char in enumerate(text + ","):
        depth += (char == "[") - (char == "]")
        if char not in OPERATORS or (depth and end < len(text)):
            continue
        term = text[start:end].strip()
        column = start + 1 + len(text[start:end]) - len(text[start:end].lstrip())
        if term:
            yield Term(operator or ",", term, column)
        elif end == len(text) or char == "," or operator not in ("", ","):
            raise NodesetError("a host or group is missing here", start + 1)
        operator, start = char, end + 1


def names_in(text: str) -> NameSet:
    """The names of a nodeset without groups."""
    names: NameSet = {}
    for operator, term, column in terms(text):
        try:
            names = joined(names, operator, dict.fromkeys(expand_term(term)))
        except NodesetError as error:
            raise NodesetError(str(error), column + error.column - 1) from None
    return names


def joined(left: NameSet, operator: str, right: NameSet) -> NameSet:
    """Both sides as the operator joins them; a comma adds to `left` itself."""
    if operator == ",":
        if len(left) + len(right) > MAX_HOSTS and len(left.keys() | right.keys()) > MAX_HOSTS:
            raise NodesetError(f"more than {MAX_HOSTS:,} hosts")
        left.update(right)
        return left
    if operator == "&":
        return {name: None for name in left if name in right}
    rest = {name: None for name in left if name not in right}
    if operator == "^":
        rest.update((name, None) for name in right if name not in left)
    return rest


def expand(text: str, limit: int = MAX_HOSTS) -> list[str]:
    """The names of a nodeset that has no operators but commas, in the order of the text."""
    names: dict[str, None] = {}
    for operator, term, column in terms(text):
        if operator != ",":
            raise NodesetError(f"only commas may join hosts here, not {operator}", column - 1)
        try:
            names.update(dict.fromkeys(expand_term(term, limit)))
        except NodesetError as error:
            raise NodesetError(str(error), column + error.column - 1) from None
        if len(names) > limit:
            raise NodesetError(f"more than {limit:,} hosts", column)
    return list(names)


def expand_term(text: str, limit: int = MAX_HOSTS) -> list[str]:
    """The names of one operand: `gpu[001-128]-ib[0-1]`."""
    if "[" not in text and "]" not in text:
        return [_valid_name(text)]
    choices: list[list[str] | _Numbers] = []
    end = 0
    for match in BRACKETS.finditer(text):
        choices.append([_plain(text[end : match.start()], end + 1)])
        choices.append(_Numbers.parse(match[1], match.start(1) + 1))
        end = match.end()
    choices.append([_plain(text[end:], end + 1)])
    if prod(len(choice) for choice in choices) > limit:
        raise NodesetError(f"{brief(text)} stands for more than {limit:,} hosts")
    names = ["".join(parts) for parts in product(*choices)]
    for name in (min(names, key=len), max(names, key=len)):
        _valid_name(name)
    return names


def _plain(text: str, column: int) -> str:
    for bracket, problem in (("[", "is not closed"), ("]", "closes nothing")):
        if bracket in text:
            raise NodesetError(f"'{bracket}' {problem}", column + text.index(bracket))
    return text


def _valid_name(name: str) -> str:
    problem = name_problem(name)
    if problem:
        raise NodesetError(f"{brief(name)}: {problem}" if name else problem)
    return name


class _Numbers:
    """The text between brackets: `001-128`, `1,3,5-9/2`. Counted, not yet expanded."""

    def __init__(self, ranges: list[tuple[range, int]]) -> None:
        self.ranges = ranges

    def __len__(self) -> int:
        return sum(len(numbers) for numbers, _ in self.ranges)

    def __iter__(self) -> Iterator[str]:
        for numbers, width in self.ranges:
            for number in numbers:
                yield f"{number:0{width}d}"

    @classmethod
    def parse(cls, text: str, column: int) -> "_Numbers":
        ranges = []
        for part in text.split(","):
            match = RANGE.fullmatch(part)
            if match is None:
                raise NodesetError(f"not a range of numbers: {brief(part) or 'nothing'}", column)
            first, last, step = match[1], match[2] or match[1], match[3] or "1"
            if max(len(first), len(last), len(step)) > MAX_DIGITS:
                raise NodesetError("a number with too many digits", column)
            padded = max(first, last, key=lambda digits: digits.startswith("0") and len(digits))
            width = len(padded) if padded.startswith("0") and len(padded) > 1 else 0
            if width and len(first) != len(last):
                text = f"{brief(part)} is padded to two widths"
                raise NodesetError(f"{text}; give both ends the same number of digits", column)
            if int(first) > int(last):
                raise NodesetError(f"{brief(part)} runs backwards", column)
            if int(step) < 1:
                raise NodesetError(f"{brief(part)} has no step", column)
            ranges.append((range(int(first), int(last) + 1, int(step)), width))
            column += len(part) + 1
        return cls(ranges)
