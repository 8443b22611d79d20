"""Answer whether nodes can feed a workload, and measure a data loader."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from msgspec.structs import replace as replaced

from nodevet.base.errors import UserError
from nodevet.checking.feeding.workload import Workload
from nodevet.evidence.loader import LoaderRun, LoaderRuns
from nodevet.feed.answer import FeedAnswer, answer
from nodevet.feed.measured import MeasuredLoader, measured_loader, measured_series
from nodevet.feed.series import MOST_WORKERS, PLACE, next_workers
from nodevet.fleet import Options
from nodevet.model import Host
from nodevet.vet.use import nodes
from nodevet.vet.use.nodes import Nodes

NO_NODES = Nodes(evidence={}, lost={})


def check_batch(workload: Workload, batch: int | None) -> None:
    """Raises UserError for a batch that the file does not have."""
    if batch is not None and batch not in workload.batches:
        sizes = ", ".join(map(str, workload.batches))
        raise UserError(f"--batch {batch} is not among the batch sizes of the file: {sizes}")


def answer_on_nodes(
    workload: Workload, nodes: Nodes = NO_NODES, batch: int | None = None
) -> FeedAnswer:
    """The answer for these nodes. `batch`: the batch to find changes for; None: the largest."""
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
    """Run a data loader on one host for some seconds, and return its counts and measured values.

    `words`: the user's own command, from the command line. If it has {workers}, it runs with 1, 2,
    4 ... `workers` until it is no longer faster. Raises UserError if it did not run, or failed.
    """
    if len(hosts) != 1:
        raise UserError(f"--on names {len(hosts)} hosts; measure a loader on one")
    if len(words) > MOST_WORDS or any(len(word) > LONGEST_WORD for word in words):
        raise UserError(f"a command has at most {MOST_WORDS} words of {LONGEST_WORD} characters")
    (host,) = hosts
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run_once = partial(_run, host, options, seconds=seconds, user=user)
    if not any(PLACE in word for word in words):
        return measured_loader(run_once(words), host.name, when, workers)
    points: list[tuple[int, LoaderRun]] = []
    while (number := next_workers(points, workers or MOST_WORKERS)) is not None:
        run = run_once([word.replace(PLACE, str(number)) for word in words])
        points.append((number, replaced(run, name=shlex.join(words)[:LONGEST_WORD])))
    return measured_series(points, host.name, when)


def _run(
    host: Host, options: Options, words: Sequence[str], *, seconds: float, user: str
) -> LoaderRun:
    """One run of a command on a host. Raises UserError."""
    is_local = host.local
    question = {
        "name": shlex.join(words)[:LONGEST_WORD],
        "words": list(words),
        "folder": str(Path.cwd()) if is_local else "",
        "path": os.environ.get("PATH", "") if is_local else "",
        "seconds": seconds,
        "user": user,
    }
    deadline = seconds * 1.5 + AROUND
    loader_options = replace(
        options, asks={"loader": (question,)}, deadline=deadline * 1.5, probe_deadline=deadline
    )
    visited = nodes.visited([host], loader_options, lambda: None)
    if host.name in visited.lost:
        raise UserError(f"{host.name}: {visited.lost[host.name]}")
    return _run_of(host.name, visited)


def _run_of(host: str, visited: Nodes) -> LoaderRun:
    """The run of the loader. Raises UserError if it did not run, or ended with an error."""
    section = visited.evidence[host][LoaderRuns]
    if section.data is None or not section.data.runs:
        why = section.why or "the answer has no run"
        raise UserError(f"{host}: the loader did not run: {why}")
    (run,) = section.data.runs
    if run.cpu_s is None:
        raise UserError(f"{host}: the loader did not run: {run.why('cpu_s')}")
    if run.exit:
        complaint = f": {run.complaint.strip()}" if run.complaint else ""
        hint = "; --run-as names another one" if run.user == "nobody" else ""
        raise UserError(
            f"{host}: the loader ended with {run.exit}, run as {run.user}{hint}{complaint}"
        )
    return run
