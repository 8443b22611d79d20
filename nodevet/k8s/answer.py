"""What report and expire say in JSON. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodevet.k8s.condition import TYPE, WrittenCondition


class KubernetesNodeAnswer(Struct, frozen=True, kw_only=True):
    """What was written to one node, or would be."""

    node: str
    status: str  # True, False or Unknown; empty: nothing is written
    message: str
    why_not: str  # why nothing is written; empty: it is
    is_short: bool  # it should have been written


class KubernetesAnswer(Struct, frozen=True, kw_only=True):
    """The conditions that report or expire wrote."""

    condition: str  # its type
    dry_run: bool  # nothing was written
    nodes: tuple[KubernetesNodeAnswer, ...]


def answer(done: Sequence[WrittenCondition], *, dry: bool) -> KubernetesAnswer:
    """The JSON form of what was written."""
    nodes = tuple(KubernetesNodeAnswer(**each._asdict()) for each in done)
    return KubernetesAnswer(condition=TYPE, dry_run=dry, nodes=nodes)
