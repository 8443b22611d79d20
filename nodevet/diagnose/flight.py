"""What dumps of PyTorch's flight recorder say about the ranks of this host (pure)."""

from collections.abc import Iterator

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.diagnose.collectives import RankDump, collective_text, dumped_ranks
from nodevet.diagnose.job_figures import WatchedJob
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import FlightGroup, ProcessActivities, ProcessActivity

GROUPS = 3  # process groups of a rank, and ranks that are behind, that are shown


def flight_lines(job: WatchedJob | str, evidence: Evidence) -> Iterator[str]:
    """How far the collectives of this job's ranks were when they wrote their dumps."""
    if isinstance(job, str):
        return
    for process in job.processes:
        if process.pid in job.on_gpu and process.flight is not None and process.rank is not None:
            age = elapsed(process.flight.age_s or 0.0)
            groups = [group for group in process.flight.groups or () if group.state != "completed"]
            for group in groups[:GROUPS]:
                yield f"flight recorder of rank {process.rank}, {age} ago: {_group_text(group)}"
            yield from _ranks_behind(process, evidence)


def _group_text(group: FlightGroup) -> str:
    """`all_reduce 118 of 1024x8 in group 0 is started; the last completed is 117`."""
    text = collective_text(group)
    done = "none" if group.completed is None else group.completed
    return f"{text} is {brief(group.state or '?')}; the last completed is {done}"


def _ranks_behind(process: ProcessActivity, evidence: Evidence) -> Iterator[str]:
    """By the dumps of all ranks of the job here: which are behind, or call something else."""
    data = evidence[ProcessActivities].data
    files = {  # a rank and a helper that it forked have the same
        (member.rank, member.flight.path): RankDump(member.rank, member.flight)
        for member in (data.processes if data else None) or ()
        if (member.job_id, member.master) == (process.job_id, process.master)
        and member.rank is not None
        and member.flight is not None
    }
    dumped = dumped_ranks(files.values(), process.ranks)
    if dumped.mismatch:
        yield dumped.mismatch
    yield from (f"rank {rank} {text}" for rank, text in sorted(dumped.behind.items())[:GROUPS])
