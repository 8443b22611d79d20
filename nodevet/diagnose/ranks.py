"""Which GPUs belong to one job: by its master address, its id, or else its command. Pure."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodevet.diagnose.job_figures import is_mps
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

LOOPBACK = re.compile(r"(localhost|127\.|\[?::1)")
NUMBER = re.compile(r"\d+")


class RankGroup(NamedTuple):
    """The job of the processes on a GPU."""

    name: str = ""  # `Slurm 12, 10.0.0.1:29500`; `python 5c1e…`; empty: not known, or it is alone
    is_job: bool = False  # by an id or an address; else only the command is the same
    on_host: bool = False  # the name says nothing on another host
    rank: int | None = None


def rank_group(evidence: Evidence, gpu: GpuActivity) -> RankGroup:
    processes = list(_on_gpu(evidence, gpu))
    masters = _names(process.master for process in processes)
    ids = _names(map(_job, processes))
    if masters:  # its ranks may lack numbers, and have that of the task that started them
        on_host = all(map(is_local, masters))
        where = ids or _names(process.cgroup for process in processes)
        places = where if on_host else _names(map(_scope, processes))
        return RankGroup(", ".join((*places, *masters)), True, on_host)
    if any(process.ranks == 1 for process in processes):
        return RankGroup()
    numbers = {process.rank for process in processes}
    rank = numbers.pop() if len(numbers) == 1 else None
    name = ", ".join(ids or _names(map(_command, processes)))
    return RankGroup(name, bool(ids), rank=rank)


def is_local(master: object) -> bool:
    """Whether a master's address is one of its host alone."""
    return isinstance(master, str) and LOOPBACK.match(master) is not None


def _on_gpu(evidence: Evidence, gpu: GpuActivity) -> Iterator[ProcessActivity]:
    data = evidence[ProcessActivities].data
    named = {process.pid for process in gpu.processes or ()}
    for process in (data.processes if data else None) or ():
        if (process.pid in named or gpu.index in process.gpus) and not is_mps(process):
            yield process


def _names(values: Iterable[str | None]) -> Sequence[str]:
    return sorted({value for value in values if value})


def _job(process: ProcessActivity) -> str | None:
    """`Slurm 12.0`: a job may run one program in each of its steps."""
    return f"{process.job_id}.{process.step}" if process.step else process.job_id


def _scope(process: ProcessActivity) -> str | None:
    """Where the name of a master is one host's: each rank of a job may have a pod of its own."""
    namespace, _, pod = (process.pod or "").partition("/")
    return f"namespace {namespace}" if pod else process.job_id


def _command(process: ProcessActivity) -> str:
    """The program, whose it is, how many ranks it has, and a digest of its arguments: they may hold
    a secret. The digest leaves out numbers, in which the ranks of a job differ."""
    if not process.command:
        return ""
    words = NUMBER.sub("#", process.arguments or "").encode()
    digest = hashlib.blake2b(words, digest_size=5).hexdigest() if words else ""
    user = f"of user {process.uid}" if process.uid is not None else ""
    ranks = f"with {process.ranks} ranks" if process.ranks else ""
    return " ".join(filter(None, (process.command, digest, user, ranks)))
