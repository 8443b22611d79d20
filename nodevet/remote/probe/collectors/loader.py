"""Runs a data loader from the command line for a while, and measures the CPU time and reads of all
its processes.

It runs as an unprivileged user unless another is named, and leaves no process behind. Of its output
only lines with a number of samples count.
"""

import json
import os
import re
import select
import time

from nodevet.remote.lifetime import find_prctl
from nodevet.remote.probe.collectors.commands import user_of
from nodevet.remote.probe.files import Absent, Reading, reason
from nodevet.remote.program import (
    CHUNK,
    PR_SET_CHILD_SUBREAPER,
    STDERR_LIMIT,
    ToolError,
    kill_children_except,
    start,
)
from nodevet.remote.tree import measure_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Sequence

    from nodevet.remote.program import Program
    from nodevet.remote.tree import TreeUsage

ASKED = True
ALONE = True
SHORTEST = 1.0  # seconds between two measurements
SPARE = 3.0  # seconds of the section that the loader does not get
LINE = 4096  # bytes of a line
COMPLAINT_LENGTH = 1000  # characters
SAMPLES = re.compile(rb"\s*samples[\s:=]+([0-9]{1,15})\s*\Z")
FIELDS = ("exit", "ended", "seconds", "cpu_s", "asked_b", "read_b", "samples", "processes", "cpus")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# folder, PATH, words; unbuffered, so that samples are reported in time
ENTER = 'cd "$1" && export PATH="$2" PYTHONUNBUFFERED=1 && shift 2 && exec "$@"'


def share(root: str) -> float:
    return 1.0


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    questions = request.get("asks", {}).get("loader", ())
    if root != "/":
        raise Absent("a loader is run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    return Reading(runs=[measure(question, end) for question in questions[:1]])


def measure(question: "dict[str, Any]", end: float) -> "Reading":
    """The record of a loader, run for its own time or until `end`."""
    record = Reading(name=question["name"], user=None, complaint="")
    try:
        user, ids = user_of(question["user"])
        record["user"] = user
        argv = ["/bin/sh", "-c", ENTER, "sh", question["folder"] or "/"]
        argv += [question["path"] or PATH] + question["words"]
        end = min(end, time.monotonic() + question["seconds"])
        record.update(run_guarded(argv, end, ids))
    except (ToolError, OSError, LookupError, ValueError) as error:
        record.fail_all(FIELDS, str(error) if isinstance(error, ToolError) else reason(error))
    return record


def run_guarded(
    argv: "list[str]", end: float, ids: "tuple[int, int, Sequence[int]] | None"
) -> "dict[str, Any]":
    """The fields of a run. Raises ToolError, OSError.

    A keeper process starts the loader, and also kills it and its children if this process is
    killed: then the pipe between the two hangs up.
    """
    answer_pipe, life_pipe = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answer_pipe[0])
        os.close(life_pipe[1])
        run_keeper(argv, end, ids, answer_pipe[1], life_pipe[0])
    os.close(answer_pipe[1])
    os.close(life_pipe[0])
    with os.fdopen(answer_pipe[0], "rb") as file:
        text = file.read()
    os.close(life_pipe[1])
    os.waitpid(pid, 0)
    fields = json.loads(text.decode("ascii")) if text else {"error": "what ran it was killed"}
    if "error" in fields:
        raise ToolError(fields["error"])
    return fields


def run_keeper(
    argv: "list[str]",
    end: float,
    ids: "tuple[int, int, Sequence[int]] | None",
    answer_pipe: int,
    life_pipe: int,
) -> "NoReturn":
    """Run a loader, write its fields, and end this process."""
    try:
        os.setsid()  # not killed with the group of the others
        try:
            fields = run_loader(argv, end, ids, life_pipe)
        except (ToolError, OSError) as error:
            fields = {"error": str(error) if isinstance(error, ToolError) else reason(error)}
        with os.fdopen(answer_pipe, "wb") as file:
            file.write(json.dumps(fields).encode("ascii"))
    finally:
        os._exit(0)


def run_loader(
    argv: "list[str]", end: float, ids: "tuple[int, int, Sequence[int]] | None", life_pipe: int
) -> "dict[str, Any]":
    """The fields of a run. Raises ToolError, OSError."""
    prctl = find_prctl()
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    usage_before = measure_usage()
    try:
        program = start(argv, stderr=True, user=ids)
        try:
            watch = LoaderWatch(life_pipe)
            stderr = watch.follow(program, end)
            last_usage = measure_usage()
        finally:
            program.end()
    finally:
        kill_children_except(set())
    # processes that ended before a measurement count only now, if the loader ended by itself
    usage_after = measure_usage() if program.code is not None and watch.ended else last_usage
    usage_after.at = last_usage.at
    total = usage_after.usage_since(usage_before)
    window, samples = watch.window() or (total, watch.samples)
    code = program.code if watch.ended else None
    return {
        "exit": None if code is None else code if code >= 0 else 128 - code,
        "ended": watch.ended,
        "complaint": stderr.decode("utf-8", "backslashreplace")[:COMPLAINT_LENGTH],
        "seconds": round(window.at, 3),
        "cpu_s": round(window.cpu_s, 3),
        "asked_b": window.asked_b,
        "read_b": window.read_b,
        "samples": samples,
        "processes": watch.most_processes,
        "cpus": len(os.sched_getaffinity(0)),
    }


class LoaderWatch(object):
    """A running loader: its samples, and its usage over time."""

    def __init__(self, life_pipe: int) -> None:
        self.life_pipe = life_pipe  # hangs up when nobody waits for the loader
        self.samples = 0
        self.most_processes = 0  # processes at once
        # the first and the last (usage, samples so far)
        self.marks: "list[tuple[TreeUsage, int]]" = []
        self.ended = False
        self.partial_line = b""  # of a line without its end

    def follow(self, program: "Program", end: float) -> bytes:
        """Read its output until it ends or `end`; returns the beginning of its stderr. Raises
        ToolError if nobody waits for it."""
        texts = {file: b"" for file in (program.stdout, program.stderr) if file is not None}
        _, stderr = texts
        poll = select.poll()
        for file in list(texts) + [self.life_pipe]:
            poll.register(file, select.POLLIN)
        open_count = len(texts)
        while time.monotonic() < end:
            if not open_count and program.ended():
                break
            for file, _ in poll.poll(100 if open_count else 10):
                if file == self.life_pipe:
                    raise ToolError("nobody waits for it")
                chunk = os.read(file, CHUNK)
                if not chunk:
                    poll.unregister(file)
                    open_count -= 1
                elif file == program.stdout:
                    self.take(chunk)
                elif len(texts[file]) < STDERR_LIMIT:
                    texts[file] += chunk
            if program.ended() and open_count and not poll.poll(0):
                break  # an orphan keeps the pipe open
        self.ended = program.ended()
        return texts[stderr][:STDERR_LIMIT]

    def take(self, chunk: bytes) -> None:
        """Count the samples of whole lines."""
        lines = (self.partial_line + chunk).split(b"\n")
        self.partial_line = lines.pop()[-LINE:]
        counts = [number for number in map(samples_of, lines) if number is not None]
        if not counts:
            return
        self.samples += sum(counts)
        if len(self.marks) < 2 or time.monotonic() - self.marks[-1][0].at >= SHORTEST:
            usage = measure_usage()
            self.most_processes = max(self.most_processes, usage.processes)
            self.marks[1:] = [(usage, self.samples)] if self.marks else []
            self.marks = self.marks or [(usage, self.samples)]

    def window(self) -> "tuple[TreeUsage, int] | None":
        """(usage, samples) from the first samples to the last, without the loader's start; None if
        that is too short."""
        if len(self.marks) < 2 or self.marks[1][0].at - self.marks[0][0].at < SHORTEST:
            return None
        (first, first_samples), (last, last_samples) = self.marks
        return last.usage_since(first), last_samples - first_samples


def samples_of(line: bytes) -> "int | None":
    """The number of samples in a line, `samples 256` or `{"samples": 256}`, or None."""
    if len(line) > LINE:
        return None
    match = SAMPLES.match(line)
    if match:
        return int(match.group(1))
    if line.lstrip()[:1] != b"{" or b'"samples"' not in line:
        return None
    try:
        samples = json.loads(line.decode("utf-8"))["samples"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    is_count = isinstance(samples, int) and not isinstance(samples, bool) and 0 <= samples < 10**15
    return samples if is_count else None
