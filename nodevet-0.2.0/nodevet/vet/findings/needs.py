"""What failures need, in words. Pure."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from nodevet.model import NeededAction
from nodevet.vet.findings.fold import Line


def needs_of(actions: Iterable[NeededAction]) -> str:
    """`needs a GPU reset`, `needs a reboot, a new part`; the order is that of NeededAction.

    >>> needs_of([NeededAction.RMA, NeededAction.REBOOT])
    'needs a reboot, a new part'
    """
    return _joined((action.words, "") for action in sorted(actions, key=_rank))


def to_do(rows: Iterable[Line]) -> str:
    """How many failures need what: `fixable now: 3, after draining: 2 · needs a person: 1`; empty
    without such a failure."""
    numbers: Counter[NeededAction] = sum((Counter(row.actions) for row in rows), Counter())
    return _joined((each.words, f": {numbers[each]:,}") for each in sorted(numbers, key=_rank))


def _rank(action: NeededAction) -> int:
    return action.rank


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    """Words and what follows them; those with the same first word together."""
    split = [(*words.partition(" ")[::2], rest) for words, rest in parts]
    groups = groupby(split, key=lambda part: part[0])
    return " · ".join(
        f"{first} {', '.join(words + rest for _, words, rest in some)}" for first, some in groups
    )
