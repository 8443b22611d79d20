"""Dumps of PyTorch's flight recorder: the last collectives of a rank, written when one timed out.

nodevet reads a dump that is there. It never asks for one: writing to the recorder's pipe would make
the job write. A dump counts only if it belongs to the user of the process, and was written after
the process began.
"""

import os
import time

from nodevet.remote.probe.cpu_limit import TooLongError, within
from nodevet.remote.probe.files import Reading, read_bytes
from nodevet.remote.probe.flight_record import age, dump_record
from nodevet.remote.probe.job_names import job_variables
from nodevet.remote.probe.plain_pickle import LARGEST, plain_value
from nodevet.remote.probe.watch import cpu_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

VARIABLES = (
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    *("XDG_CACHE_HOME", "HOME", "RANK", "WORLD_SIZE"),
)
LONGEST = 4096  # characters of a path
TOO_LONG = "reading the dumps took too long"
MOST_S = 3.0  # of CPU time for all dumps; one of 2,000 entries takes 0.3 s


def paths(variables: "dict[str, str]") -> "Iterator[str]":
    """Where the dump of a rank may be, the most likely first."""
    rank = variables.get("RANK", "")
    if not rank.isdigit():
        return
    named = [variables[name] for name in VARIABLES[:2] if variables.get(name)]
    home = variables.get("HOME", "")
    cache = variables.get("XDG_CACHE_HOME") or (home + "/.cache" if home else "")
    usual = ["/tmp/nccl_trace_rank_"]  # noqa: S108 - read if it is the job's user's
    if cache:
        usual.insert(0, cache + "/torch/comm_lib_trace_rank_")
    for prefix in named[:1] or usual:
        if prefix.startswith("/"):
            yield prefix + rank


class Dumps(object):
    """The dumps of all ranks, which share the time."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def read(self, folder: str, uid: int, began: float) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.FlightDump for the process in this
        folder of /proc, of this user, that began at a time since 1970. Raises OSError,
        ValueError."""
        variables = job_variables("/", folder, VARIABLES, LONGEST)
        if "RANK" not in variables:
            raise ValueError("it has no RANK")
        root = folder + "root"
        why = "it has written no dump"
        times: "list[float]" = []
        for path in paths(variables):
            try:
                data = read_bytes(
                    root, path, LARGEST + 1, lambda file: times.append(written(file, uid))
                )
            except FileNotFoundError:
                continue
            if times[-1] < began:
                why = "the dump is older than the process"
                continue
            record = self.record(data, time.time(), began, variables.get("WORLD_SIZE", ""))
            record["path"], record["age_s"] = path, age(times[-1], time.time())
            return record
        raise ValueError(why)

    def record(self, data: bytes, now: float, began: float, size: str) -> "Reading":
        """What a dump says. Raises ValueError, also if the time is used up."""
        before, left = cpu_s(), MOST_S - self.spent_s
        if left <= 0:
            raise ValueError(TOO_LONG)

        def work() -> "Reading":
            return dump_record(plain_value(data), now, began, size)

        try:
            return within(left, TOO_LONG, work)
        except TooLongError:
            self.spent_s = MOST_S  # by that clock, which may be ahead
            raise
        finally:
            self.spent_s += cpu_s() - before


def written(file: int, uid: int) -> float:
    """When a file of this user was written. Raises ValueError for others' files."""
    status = os.fstat(file)
    if status.st_uid != uid:
        raise ValueError("the dump belongs to another user than the job")
    return status.st_mtime
