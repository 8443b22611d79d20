"""Feed: a workload held against nodes, or against nothing but itself; and a loader measured."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.checking.feeding.workload import Workload
from nodevet.evidence.loader import LoaderRun, LoaderRuns
from nodevet.feed.answer import FeedAnswer, answer
from nodevet.feed.measured import MeasuredLoader, block, measured_loader
from nodevet.fleet import Options
from nodevet.model import Host
from nodevet.vet.use import nodes
from nodevet.vet.use.nodes import Nodes

NO_NODES = Nodes(evidence={}, lost={})


def check_batch(workload: Workload, batch: int | None) -> None:
    """Raises UserError for a batch that the file does not have."""
    if batch is not None and batch not in workload.batches:
        there = ", ".join(map(str, workload.batches))
        raise UserError(f"--batch {batch} is not among the batch sizes of the file: {there}")


def fed(workload: Workload, nodes: Nodes = NO_NODES, batch: int | None = None) -> FeedAnswer:
    """The answer. `batch`: the one that changes are sought for; the largest if none is named."""
    return answer(workload, nodes.evidence, nodes.lost, batch)


MOST_WORDS = 256
LONGEST_WORD = 4096  # characters
AROUND = 60.0  # seconds for the rest of a visit


def measure(
    words: Sequence[str],
    hosts: Sequence[Host],
    options: Options,
    *,
    seconds: float,
    user: str,
    workers: int | None,
) -> MeasuredLoader:
    """Run a data loader on one host for a while: what it did, and what a workload takes of that.

    The command is the user's own, as it stands on the command line. Raises UserError if it could
    not be run or failed.
    """
    if len(hosts) != 1:
        raise UserError(f"a loader is measured on one host, and {len(hosts)} are named")
    if len(words) > MOST_WORDS or any(len(word) > LONGEST_WORD for word in words):
        raise UserError(f"a command has at most {MOST_WORDS} words of {LONGEST_WORD} characters")
    (host,) = hosts
    here = host.local
    question = {
        "name": shlex.join(words)[:LONGEST_WORD],
        "words": list(words),
        "folder": str(Path.cwd()) if here else "",
        "path": os.environ.get("PATH", "") if here else "",
        "seconds": seconds,
        "user": user,
    }
    deadline = seconds * 1.5 + AROUND
    asked = replace(
        options, asks={"loader": (question,)}, deadline=deadline * 1.5, probe_deadline=deadline
    )
    found = nodes.visited(hosts, asked, lambda: None)
    if host.name in found.lost:
        raise UserError(f"{host.name}: {found.lost[host.name]}")
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return measured_loader(_run_of(host.name, found), host.name, when, workers)


def _run_of(host: str, found: Nodes) -> LoaderRun:
    """How the loader ran. Raises UserError if it did not, or ended with an error."""
    section = found.evidence[host][LoaderRuns]
    if section.data is None or not section.data.runs:
        why = section.why or "the answer has no run"
        raise UserError(f"{host}: the loader could not be run: {why}")
    (run,) = section.data.runs
    if run.cpu_s is None:
        raise UserError(f"{host}: the loader could not be run: {run.why('cpu_s')}")
    if run.exit:
        said = f": {run.complaint.strip()}" if run.complaint else ""
        hint = "; --user names another one" if run.user == "nobody" else ""
        raise UserError(f"{host}: the loader ended with {run.exit}, run as {run.user}{hint}{said}")
    return run


def as_block(found: MeasuredLoader) -> str:
    """What was measured, as a workload file has it."""
    return block(found)
