"""Section loader."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import Record, SectionRecord


class LoaderRun(Record, frozen=True, kw_only=True):
    """A data loader that was run and measured, with all processes that it started: from its first
    samples to its last, or as a whole if it reported too few.
    """

    volatile = ("seconds", "cpu_s", "asked_b", "read_b", "samples", "processes", "cpus")

    name: Text  # its words, as a shell has them
    user: Text | None = None  # who ran it
    ended: bool | None = None  # by itself, before its time was over
    exit: int | None = None  # if it did
    complaint: Text | None = None  # the beginning of its standard error
    seconds: Real | None = None
    cpu_s: Real | None = None  # of all its processes: /proc/PID/stat, getrusage(2)
    asked_b: int | None = None  # rchar of /proc/PID/io: read(2), of files, pipes and sockets
    read_b: int | None = None  # read_bytes of /proc/PID/io: from storage
    samples: int | None = None  # that its lines told of
    cpus: int | None = None  # that it may use: sched_getaffinity(2)
    processes: int | None = None  # that ran at once, at the most


class LoaderRuns(SectionRecord, frozen=True, kw_only=True):
    """What `nodevet feed --measure` asked for."""

    unique = ("runs[].name",)
    plural = "loaders"

    runs: Annotated[tuple[LoaderRun, ...], bounds.ASKED] | None = None
