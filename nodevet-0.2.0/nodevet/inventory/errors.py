"""The problems of an inventory."""

from collections.abc import Iterable, Sequence

from nodevet.base.printable import brief
from nodevet.base.problems import Problem, problems_text


class InventoryError(Exception):
    """The inventory cannot be used, because of `problems`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return problems_text(self.problems)


def inventory_error(name: object, text: str, advice: str = "") -> InventoryError:
    """The error about one inventory as a whole."""
    return InventoryError([Problem(brief(name), "", text, advice)])


def shorten(names: Sequence[str], limit: int = 5) -> str:
    """The first names for a message, folded into a nodeset if possible."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    plain = [name for name in names if not set(name) & set(":@")]
    if len(plain) == len(names) and names:
        return brief(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP), limit=120)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(brief(name) for name in names[:limit]) + more
