"""Which GPUs belong to one job: by its id, its master address, or else its command. Pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

LOOPBACK = re.compile(r"(localhost|127\.|\[?::1)")
NUMBER = re.compile(r"\d+")


class RankGroup(NamedTuple):
    """The job of the processes on a GPU."""

    name: str = ""  # `Slurm 12, 10.0.0.1:29500`; `python 5c1e…`; empty: not known
    is_job: bool = False  # by an id or an address; else only the command is the same
    on_host: bool = False  # the name says nothing on another host


def rank_group(evidence: Evidence, gpu: GpuActivity) -> RankGroup:
    processes = list(_on_gpu(evidence, gpu))
    ids = _names([process.job_id for process in processes])
    masters = _names([process.master for process in processes])
    if ids or masters:
        on_host = bool(masters) and all(map(LOOPBACK.match, masters))
        return RankGroup(", ".join((*ids, *masters)), True, on_host)
    return RankGroup(", ".join(_names([_command(process) for process in processes])))


def _on_gpu(evidence: Evidence, gpu: GpuActivity) -> Iterator[ProcessActivity]:
    data = evidence[ProcessActivities].data
    named = {process.pid for process in gpu.processes or ()}
    for process in (data.processes if data else None) or ():
        if process.pid in named or gpu.index in process.gpus:
            yield process


def _names(values: Sequence[str | None]) -> list[str]:
    return sorted({value for value in values if value})


def _command(process: ProcessActivity) -> str:
    """The program and a digest of its arguments: they may hold a secret. The digest leaves out
    numbers, in which the ranks of a job differ."""
    program = process.command or ""
    if not process.arguments:
        return program
    words = NUMBER.sub("#", process.arguments).encode()
    return f"{program} {hashlib.blake2b(words, digest_size=5).hexdigest()}"
