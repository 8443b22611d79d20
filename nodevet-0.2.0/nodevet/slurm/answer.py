"""What drain and resume say in JSON, and its schema's types. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodevet.slurm.decide import NodePlan


class SlurmNodeAnswer(Struct, frozen=True, kw_only=True):
    """What was done with one node, or would be."""

    node: str
    reason: str  # to drain it with; of a node that is resumed: why it was drained
    why_not: str  # why it is left as it is; empty: it is drained or resumed
    is_short: bool  # left only for a limit, or since Slurm refused


class SlurmAnswer(Struct, frozen=True, kw_only=True):
    """What drain or resume did by a run."""

    run: str
    verb: str  # drained, resumed
    dry_run: bool  # nothing was done
    nodes: tuple[SlurmNodeAnswer, ...]


def answer(done: Sequence[NodePlan], verb: str, run: str, *, dry: bool) -> SlurmAnswer:
    """The JSON form of what was done."""
    nodes = tuple(SlurmNodeAnswer(**plan._asdict()) for plan in done)
    return SlurmAnswer(run=run, verb=verb, dry_run=dry, nodes=nodes)
