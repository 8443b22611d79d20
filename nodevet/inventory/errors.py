"""Everything that is wrong with an inventory."""

from collections.abc import Iterable, Sequence

from nodevet.base.printable import brief
from nodevet.base.problems import Problem, listed


class InventoryError(Exception):
    """The inventory cannot be used. `problems` holds every one that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return listed(self.problems)


def shorten(names: Sequence[str], limit: int = 5) -> str:
    """Some names for an error, folded into a nodeset."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    plain = [name for name in names if not set(name) & set(":@")]
    if len(plain) == len(names) and names:
        return brief(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP), limit=120)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(brief(name) for name in names[:limit]) + more
