"""Host names as people write sets of them: `gpu[001-128]`. Bounded before it is unfolded."""

import re
from math import prod
from typing import Any

MOST_HOSTS = 100_000
ALLOWED = re.compile(r"[A-Za-z0-9._:,\[\]/!&^-]+")
TERM = re.compile(r"(?:\[[^\]]*\]|[^,!&^\[\]])+")
RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?(?:/([0-9]+))?")


def hosts(text: str) -> frozenset[str]:
    """The host names in a nodeset. Raises ValueError with a sentence for the user."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if not ALLOWED.fullmatch(text):
        raise ValueError("must be host names such as gpu[001-128]; join several with commas")
    bounded((text,))
    try:
        names = frozenset(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        said = str(error).replace('""', '"')
        raise ValueError(f"is not a nodeset ({said}); write it like gpu[001-128]") from error
    if not names:
        raise ValueError("names no host; write it like gpu[001-128]")
    return names


def bounded(texts: Any) -> Any:
    """The same texts, once it is certain that they stand for a bearable number of hosts."""
    if isinstance(texts, tuple):
        terms = (term for text in texts if isinstance(text, str) for term in TERM.findall(text))
        if sum(map(_size, terms)) > MOST_HOSTS:
            raise ValueError(f"names more than {MOST_HOSTS:,} hosts; check the range")
    return texts


def _size(term: str) -> int:
    """At most how many hosts a term such as `gpu[1-4]-[1,2]` stands for."""
    return prod(
        sum(_range_size(part) for part in bracket.split(","))
        for bracket in re.findall(r"\[([^\]]*)\]", term)
    )


def _range_size(part: str) -> int:
    found = RANGE.fullmatch(part)
    if found is None or found[2] is None:
        return 1  # a single number, or no range at all: NodeSet says so
    digits = max(len(found[1]), len(found[2]))
    if digits > 12:
        return MOST_HOSTS + 1
    step = int(found[3] or 1) if len(found[3] or "") <= 12 else 1
    return max(0, int(found[2]) - int(found[1])) // max(step, 1) + 1
