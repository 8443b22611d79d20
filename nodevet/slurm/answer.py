"""The JSON of drain and resume, and the types of its schema. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodevet.slurm.decide import NodePlan


class SlurmNodeAnswer(Struct, frozen=True, kw_only=True):
    """What drain or resume did with one node, or would do."""

    node: str
    reason: str  # why it is drained; for resume: why it was drained
    why_not: str  # why nothing was done; empty if it is drained or resumed
    is_short: bool  # only a limit, or a refusal of Slurm, stopped it


class SlurmAnswer(Struct, frozen=True, kw_only=True):
    """What drain or resume did with the nodes of a run."""

    run: str
    verb: str  # drained, resumed
    dry_run: bool  # whether it only showed what it would do
    nodes: tuple[SlurmNodeAnswer, ...]


def answer(done: Sequence[NodePlan], verb: str, run: str, *, dry: bool) -> SlurmAnswer:
    """The JSON of the plans that were carried out."""
    nodes = tuple(SlurmNodeAnswer(**plan._asdict()) for plan in done)
    return SlurmAnswer(run=run, verb=verb, dry_run=dry, nodes=nodes)
