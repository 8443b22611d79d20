"""The JSON output of report and expire. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodevet.k8s.condition import TYPE, WrittenCondition


class KubernetesNodeAnswer(Struct, frozen=True, kw_only=True):
    """The condition that nodevet wrote to one node, or would write with --dry-run."""

    node: str
    status: str  # True, False or Unknown; empty: nodevet wrote nothing
    message: str
    why_not: str  # why nodevet wrote nothing; empty: it wrote
    is_short: bool  # writing failed


class KubernetesAnswer(Struct, frozen=True, kw_only=True):
    """The conditions that report or expire wrote."""

    condition: str  # its type
    dry_run: bool  # nodevet wrote nothing
    nodes: tuple[KubernetesNodeAnswer, ...]


def answer(done: Sequence[WrittenCondition], *, dry: bool) -> KubernetesAnswer:
    """The JSON output for these conditions. `dry`: nodevet wrote none of them."""
    nodes = tuple(KubernetesNodeAnswer(**written._asdict()) for written in done)
    return KubernetesAnswer(condition=TYPE, dry_run=dry, nodes=nodes)
