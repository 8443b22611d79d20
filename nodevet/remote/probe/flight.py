"""Dumps of PyTorch's flight recorder: the last collectives of a rank, written when one timed out.

nodevet reads a dump that is there. It never asks for one: writing to the recorder's pipe would make
the job write. A dump counts only if it belongs to the user of the process, and was written after
the process began.
"""

import os
import time

from nodevet.remote.probe.files import Reading, read_bytes
from nodevet.remote.probe.job_names import job_variables
from nodevet.remote.probe.plain_pickle import LARGEST, plain_value
from nodevet.remote.probe.watch import cpu_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

VARIABLES = (
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    *("XDG_CACHE_HOME", "HOME", "RANK"),
)
LONGEST = 4096  # characters of a path
GROUPS = 16  # process groups of a dump
MOST_S = 1.0  # of CPU time for all dumps; one of 2,000 entries takes 0.3 s
LARGEST_NUMBER = 1 << 53
SEQUENCE = "collective_seq_id"
DONE = "completed"
STATES = ("scheduled", "started", DONE)


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
        why = "no dump of the flight recorder"
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
            record = Reading(path=path, age_s=round(max(0.0, time.time() - times[-1]), 1))
            record["groups"] = self.groups_in(data)
            return record
        raise ValueError(why)

    def groups_in(self, data: bytes) -> "list[Reading]":
        """The process groups of a dump. Raises ValueError, also if the time is used up."""
        if self.spent_s > MOST_S:
            raise ValueError("reading the dumps of other ranks took too long")
        before = cpu_s()
        try:
            return groups(plain_value(data))
        finally:
            self.spent_s += cpu_s() - before


def written(file: int, uid: int) -> float:
    """When a file of this user was written. Raises ValueError for others' files."""
    status = os.fstat(file)
    if status.st_uid != uid:
        raise ValueError("the dump belongs to another user than the job")
    return status.st_mtime


def groups(value: "Any") -> "list[Reading]":
    """For each process group of a dump: how far its collectives are. Raises ValueError."""
    entries = value.get("entries") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise ValueError("the dump has no entries")
    by_group: "dict[str, list[dict[str, Any]]]" = {}
    for entry in entries:
        if isinstance(entry, dict) and not entry.get("is_p2p") and entry.get("state") in STATES:
            names = entry.get("process_group")
            name = text(names[0] if isinstance(names, list) and names else names)
            if type(entry.get(SEQUENCE)) is int and 0 <= entry[SEQUENCE] < LARGEST_NUMBER:
                by_group.setdefault(name, []).append(entry)
    return [group(name, by_group[name]) for name in sorted(by_group)[:GROUPS]]


def group(name: str, entries: "list[dict[str, Any]]") -> "Reading":
    """The JSON form of nodevet.evidence.process_activity.FlightGroup."""
    entries = sorted(entries, key=lambda entry: entry[SEQUENCE])
    waiting = [entry for entry in entries if entry["state"] != DONE]
    shown = (waiting or entries[-1:])[0]
    done = [entry[SEQUENCE] for entry in entries if entry["state"] == DONE]
    return Reading(
        group=name,
        completed=max(done) if done else None,
        scheduled=entries[-1][SEQUENCE],
        sequence=shown[SEQUENCE],
        collective=text(shown.get("profiling_name")),
        sizes=sizes(shown.get("input_sizes")),
        state=shown["state"],
    )


def text(value: "Any") -> str:
    return value[:100] if isinstance(value, str) else "?"


def sizes(value: "Any") -> str:
    """`1024x8, 16` of the first tensors; a value that a pickle repeats inside itself is never
    unfolded."""
    tensors = value[:4] if isinstance(value, list) else []
    texts = [
        "x".join(str(number) for number in tensor[:8] if type(number) is int)
        for tensor in tensors
        if isinstance(tensor, list)
    ]
    return ", ".join(texts)[:100]
