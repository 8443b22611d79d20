"""Sets of host names as people write them: `gpu[001-128]`. Checks their size before expansion."""

import re
from math import prod

MOST_HOSTS = 100_000
ALLOWED = re.compile(r"[A-Za-z0-9._:,\[\]/!&^-]+")
TERM = re.compile(r"(?:\[[^\]]*\]|[^,!&^\[\]])+")
RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?(?:/([0-9]+))?")


def hosts(text: str) -> frozenset[str]:
    """The host names in a nodeset. Raises ValueError with a message for the user."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if not ALLOWED.fullmatch(text):
        raise ValueError("must be host names such as gpu[001-128]; join several with commas")
    check_size((text,))
    try:
        names = frozenset(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        reason = str(error).replace('""', '"')
        raise ValueError(f"is not a nodeset ({reason}); write it like gpu[001-128]") from error
    if not names:
        raise ValueError("names no host; write it like gpu[001-128]")
    return names


def check_size(texts: tuple[str, ...]) -> None:
    """Raises ValueError if nodesets name too many hosts."""
    terms = (term for text in texts for term in TERM.findall(text))
    if sum(map(_size, terms)) > MOST_HOSTS:
        raise ValueError(f"names more than {MOST_HOSTS:,} hosts; check the range")


def _size(term: str) -> int:
    """The most hosts that a term such as `gpu[1-4]-[1,2]` can name."""
    return prod(
        sum(_range_size(part) for part in bracket.split(","))
        for bracket in re.findall(r"\[([^\]]*)\]", term)
    )


def _range_size(part: str) -> int:
    match = RANGE.fullmatch(part)
    if match is None or match[2] is None:
        return 1  # a single number, or no range at all: NodeSet says so
    digits = max(len(match[1]), len(match[2]))
    if digits > 12:
        return MOST_HOSTS + 1
    step = int(match[3] or 1) if len(match[3] or "") <= 12 else 1
    return max(0, int(match[2]) - int(match[1])) // max(step, 1) + 1
