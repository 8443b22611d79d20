"""Feed: a workload held against nodes, or against nothing but itself."""

from nodevet.feed.answer import FeedAnswer, answer
from nodevet.feed.workload import Workload
from nodevet.run.errors import UserError
from nodevet.run.nodes import Nodes

NO_NODES = Nodes(evidence={}, lost={})


def check_batch(workload: Workload, batch: int | None) -> None:
    """Raises UserError for a batch that the file does not have."""
    if batch is not None and batch not in workload.batches:
        there = ", ".join(map(str, workload.batches))
        raise UserError(f"--batch {batch} is not among the batch sizes of the file: {there}")


def fed(workload: Workload, nodes: Nodes = NO_NODES, batch: int | None = None) -> FeedAnswer:
    """The answer. `batch`: the one that changes are sought for; the largest if none is named."""
    return answer(workload, nodes.evidence, nodes.lost, batch)
