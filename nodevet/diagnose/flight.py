"""What dumps of PyTorch's flight recorder say about the ranks of this host (pure)."""

from collections.abc import Iterable, Iterator

from nodevet.base.durations import elapsed
from nodevet.diagnose.job_figures import WatchedJob
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import spans
from nodevet.evidence.process_activity import FlightGroup, ProcessActivities, ProcessActivity

GROUPS = 3  # process groups of a rank that are shown


def flight_lines(job: WatchedJob | str, evidence: Evidence) -> Iterator[str]:
    """How far the collectives of this job's ranks were when they wrote their dumps."""
    if isinstance(job, str):
        return
    for process in job.processes:
        if process.pid in job.on_gpu and process.flight is not None and process.rank is not None:
            age = elapsed(process.flight.age_s or 0.0)
            groups = [each for each in process.flight.groups or () if each.state != "completed"]
            for group in groups[:GROUPS]:
                yield f"flight recorder of rank {process.rank}, {age} ago: {_group_text(group)}"
                yield from _behind(group.group, _ranks(process, evidence))


def _group_text(group: FlightGroup) -> str:
    """`all_reduce 118 of 1024x8 in group 0 is started, 117 is completed`."""
    sizes = f" of {group.sizes}" if group.sizes else ""
    text = f"{group.collective} {group.sequence}{sizes} in group {group.group}"
    done = "none" if group.completed is None else group.completed
    return f"{text} is {group.state}; the last completed is {done}"


def _ranks(process: ProcessActivity, evidence: Evidence) -> Iterable[ProcessActivity]:
    """The ranks of the same job in the evidence."""
    data = evidence[ProcessActivities].data
    return [
        each
        for each in (data.processes if data else None) or ()
        if (each.job_id, each.master) == (process.job_id, process.master) and each.rank is not None
    ]


def _behind(name: str, ranks: Iterable[ProcessActivity]) -> Iterator[str]:
    """The ranks of a group that have scheduled fewer collectives than the others."""
    scheduled = {
        each.rank: group.scheduled
        for each in ranks
        for group in (each.flight.groups if each.flight else None) or ()
        if group.group == name and each.rank is not None and group.scheduled is not None
    }
    most = max(scheduled.values(), default=0)
    late = sorted(rank for rank, number in scheduled.items() if number < most)
    if late:
        number = min(scheduled[rank] for rank in late)
        text = f"rank {spans(late)} is" if len(late) == 1 else f"ranks {spans(late)} are"
        yield f"{text} behind in group {name}: {number} scheduled there, {most} elsewhere"
