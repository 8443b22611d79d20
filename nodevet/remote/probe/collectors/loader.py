"""A data loader that a person named on the command line is run for a while, and measured: what it
and all that it starts take of the CPUs, and what they read.

It runs as a user who may nothing unless another is named; at its end, or that of its time, nothing
of it is left. Of what it prints only lines that say how many samples are done are looked at.
"""

import json
import os
import re
import select
import time

from nodevet.remote.guard import find_prctl
from nodevet.remote.probe.collectors.commands import user_of
from nodevet.remote.probe.files import Absent, Reading, reason
from nodevet.remote.program import (
    CHUNK,
    COMPLAINT,
    PR_SET_CHILD_SUBREAPER,
    ToolError,
    end_all_but,
    start,
)
from nodevet.remote.tree import used

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Sequence

    from nodevet.remote.program import Program
    from nodevet.remote.tree import Used

ASKED = True
ALONE = True
SHORTEST = 1.0  # seconds between two looks at what is used
SPARE = 3.0  # seconds of the section that the loader does not have
LINE = 4096  # bytes of a line that is looked at
SHOWN = 1000  # characters of what it complains of
SAMPLES = re.compile(rb"\s*samples[\s:=]+([0-9]{1,15})\s*\Z")
FIELDS = ("exit", "ended", "seconds", "cpu_s", "asked_b", "read_b", "samples", "processes")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# folder, PATH, words; a loader that buffers what it prints would tell of no sample in time
ENTER = 'cd "$1" && export PATH="$2" PYTHONUNBUFFERED=1 && shift 2 && exec "$@"'


def share(root: str) -> float:
    return 1.0


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    asked = request.get("asks", {}).get("loader", ())
    if root != "/":
        raise Absent("a loader is run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    return Reading(runs=[measured(question, end) for question in asked[:1]])


def measured(question: "dict[str, Any]", end: float) -> "Reading":
    """What one loader took, in its own time or until `end`."""
    record = Reading(name=question["name"], user=None, complaint="")
    try:
        user, who = user_of(question["user"])
        record["user"] = user
        words = ["/bin/sh", "-c", ENTER, "sh", question["folder"] or "/"]
        words += [question["path"] or PATH] + question["words"]
        end = min(end, time.monotonic() + question["seconds"])
        record.update(watched(words, end, who))
    except (ToolError, OSError, LookupError, ValueError) as error:
        record.fail_all(FIELDS, str(error) if isinstance(error, ToolError) else reason(error))
    return record


def watched(
    words: "list[str]", end: float, who: "tuple[int, int, Sequence[int]] | None"
) -> "dict[str, Any]":
    """The fields of a run. Raises ToolError, OSError.

    A process apart starts the loader, and ends it and all that it started also when this one is
    killed: it sees that by a pipe of which only this one has the other end.
    """
    told, life = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(told[0])
        os.close(life[1])
        keep(words, end, who, told[1], life[0])
    os.close(told[1])
    os.close(life[0])
    with os.fdopen(told[0], "rb") as file:
        text = file.read()
    os.close(life[1])
    os.waitpid(pid, 0)
    found = json.loads(text.decode("ascii")) if text else {"error": "what ran it was killed"}
    if "error" in found:
        raise ToolError(found["error"])
    return found


def keep(
    words: "list[str]",
    end: float,
    who: "tuple[int, int, Sequence[int]] | None",
    told: int,
    life: int,
) -> "NoReturn":
    """Run a loader, tell of it, and end this process."""
    try:
        os.setsid()  # whoever is killed with the group of the others, this one is not
        try:
            found = kept(words, end, who, life)
        except (ToolError, OSError) as error:
            found = {"error": str(error) if isinstance(error, ToolError) else reason(error)}
        with os.fdopen(told, "wb") as file:
            file.write(json.dumps(found).encode("ascii"))
    finally:
        os._exit(0)


def kept(
    words: "list[str]", end: float, who: "tuple[int, int, Sequence[int]] | None", life: int
) -> "dict[str, Any]":
    """The fields of a run. Raises ToolError, OSError."""
    prctl = find_prctl()
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a loader leaves behind is our child then
    before = used()
    try:
        program = start(words, stderr=True, user=who)
        try:
            watch = LoaderWatch(life)
            complaint = watch.follow(program, end)
            last = used()
        finally:
            program.end()
    finally:
        end_all_but(set())
    # what ended before it was looked at is counted only now; of one that was stopped, then
    after = used() if program.code is not None and watch.ended else last
    after.at = last.at
    whole = after.since(before)
    window, samples = watch.window() or (whole, watch.samples)
    code = program.code if watch.ended else None
    return {
        "exit": None if code is None else code if code >= 0 else 128 - code,
        "ended": watch.ended,
        "complaint": complaint.decode("utf-8", "backslashreplace")[:SHOWN],
        "seconds": round(window.at, 3),
        "cpu_s": round(window.cpu_s, 3),
        "asked_b": window.asked_b,
        "read_b": window.read_b,
        "samples": samples,
        "processes": watch.most,
    }


class LoaderWatch(object):
    """A loader that runs: how many samples it told of, and what was used when."""

    def __init__(self, life: int) -> None:
        self.life = life  # hangs up when nobody waits for the loader any more
        self.samples = 0
        self.most = 0  # processes at once
        # the first and the last look at what is used, each with the samples so far
        self.marks: "list[tuple[Used, int]]" = []
        self.ended = False
        self.left = b""  # of a line without its end

    def follow(self, program: "Program", end: float) -> bytes:
        """Read what it prints until it ends or its time does; the beginning of its stderr. Raises
        ToolError if nobody waits for it."""
        texts = {file: b"" for file in (program.stdout, program.stderr) if file is not None}
        _, complaint = texts
        poll = select.poll()
        for file in list(texts) + [self.life]:
            poll.register(file, select.POLLIN)
        left = len(texts)
        while time.monotonic() < end:
            if not left and program.ended():
                break
            for file, _ in poll.poll(100 if left else 10):
                if file == self.life:
                    raise ToolError("nobody waits for it")
                chunk = os.read(file, CHUNK)
                if not chunk:
                    poll.unregister(file)
                    left -= 1
                elif file == program.stdout:
                    self.take(chunk)
                elif len(texts[file]) < COMPLAINT:
                    texts[file] += chunk
            if program.ended() and left and not poll.poll(0):
                break  # something that it left behind keeps the pipe open
        self.ended = program.ended()
        return texts[complaint][:COMPLAINT]

    def take(self, chunk: bytes) -> None:
        """Count the samples of whole lines."""
        lines = (self.left + chunk).split(b"\n")
        self.left = lines.pop()[-LINE:]
        found = [number for number in map(samples_of, lines) if number is not None]
        if not found:
            return
        self.samples += sum(found)
        if len(self.marks) < 2 or time.monotonic() - self.marks[-1][0].at >= SHORTEST:
            now = used()
            self.most = max(self.most, now.processes)
            self.marks[1:] = [(now, self.samples)] if self.marks else []
            self.marks = self.marks or [(now, self.samples)]

    def window(self) -> "tuple[Used, int] | None":
        """(what was used, samples) between the first samples and the last, so that what the loader
        takes to begin with does not count; None if that was not long enough."""
        if len(self.marks) < 2 or self.marks[1][0].at - self.marks[0][0].at < SHORTEST:
            return None
        (first, none), (last, all_) = self.marks
        return last.since(first), all_ - none


def samples_of(line: bytes) -> "int | None":
    """The samples that a line tells of, `samples 256` or `{"samples": 256}`; None for another."""
    if len(line) > LINE:
        return None
    found = SAMPLES.match(line)
    if found:
        return int(found.group(1))
    if line.lstrip()[:1] != b"{" or b'"samples"' not in line:
        return None
    try:
        told = json.loads(line.decode("utf-8"))["samples"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    fine = isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 10**15
    return told if fine else None
