"""Reads sections in child processes, and survives whatever they do.

A child reads several sections in turn: a lane. A section that hangs, crashes or floods its pipe
costs only itself. If a section takes longer than a moment, crashes, or leaves its child changed,
another child reads the sections behind it. A section that may hang or takes long declares `ALONE`
and has its own child: a GPU that has fallen off the bus can block an NVML call for ever.

This process kills its children at the deadline, and when nobody reads the answer any more: a
measured data loader must stop when the person who started it leaves. The kernel kills them if this
process dies.
"""

import os
import select
import signal
import time

from nodevet.remote.lifetime import NobodyReads, find_prctl, is_gone
from nodevet.remote.probe import lane
from nodevet.remote.probe.files import reason
from nodevet.remote.probe.messages import ANSWER, STOP, Messages, Note, decode, failure
from nodevet.remote.probe.sections import lanes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

GRACE = 0.5  # seconds for killed children to exit
MOMENT = 1.0  # seconds for a section before another child reads those behind it
SHARE = 0.1  # of the deadline, if that is less
CHUNK = 1 << 16  # bytes in one read(2)


class Child(object):
    """A running child: its process, its pipe, and the sections that it has yet to answer."""

    def __init__(
        self, names: "Sequence[str]", pid: int, reader: int, note: "Note", now: float
    ) -> None:
        self.names = list(names)  # it reads the first
        self.pid = pid
        self.reader = reader
        self.started = now
        self.messages = Messages()
        self.note = note
        self.overtaken = False


class Gathering(object):
    """The children that read some sections, and the results so far."""

    def __init__(self, root: str, request: "dict[str, Any]", seconds: "dict[str, float]") -> None:
        """`seconds`: {section: time from now}."""
        now = time.monotonic()
        self.root = root
        self.request = request
        self.seconds = seconds
        self.ends = {name: now + seconds[name] for name in seconds}
        self.moment = min([MOMENT] + [SHARE * limit for limit in seconds.values()])
        self.results: "dict[str, dict[str, Any]]" = {}
        self.running: "dict[int, Child]" = {}  # by reader
        self.pids: "list[int]" = []
        self.prctl = find_prctl()
        self.poll = select.poll()
        self.answer_to = request.get("answer_to")
        if self.answer_to is not None:
            self.poll.register(self.answer_to, 0)  # poll reports a hangup even so

    def start(self, names: "Sequence[str]") -> None:
        """Have a child read the sections whose time is not up."""
        now = time.monotonic()
        pending = [name for name in names if now < self.ends[name]]
        for name in names:
            if name not in pending:
                self.record_timeout(name, "")
        if not pending:
            return
        try:
            child = self.spawn(pending, now)
        except OSError as error:
            why = "cannot start the collector: " + reason(error)
            self.results.update((name, failure(why)) for name in pending)
            return
        self.running[child.reader] = child
        self.pids.append(child.pid)
        self.poll.register(child.reader, select.POLLIN)

    def spawn(self, names: "Sequence[str]", now: float) -> "Child":
        """A child that reads these sections. Raises OSError."""
        note, parent = Note(), os.getpid()
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid:
            os.close(writer)
            return Child(names, pid, reader, note, now)
        try:
            for descriptor in list(self.running) + [reader]:
                os.close(descriptor)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):  # a library's output must not reach the answer
                os.dup2(null, descriptor)
            context = (self.root, self.request, writer, note, self.prctl, parent)
            lane.read_all(names, self.ends, *context)
        finally:
            os._exit(0)

    def forget(self, child: "Child") -> "list[str]":
        """Close a child's pipe; returns the sections that it did not answer."""
        self.poll.unregister(child.reader)
        os.close(child.reader)
        del self.running[child.reader]
        return child.names

    def give_up(self, child: "Child", result: "dict[str, Any]") -> None:
        """Record the result of a child's section; another child reads the next ones."""
        name, *rest = self.forget(child)
        self.results[name] = result
        self.start(rest)

    def read_messages(self, child: "Child") -> None:
        """Read what a child has written."""
        chunk = os.read(child.reader, CHUNK)
        if not chunk:
            self.give_up(child, failure(epitaph(child.pid)))
            return
        try:
            for kind, text in child.messages.take(chunk):
                if kind == ANSWER:
                    self.results[child.names.pop(0)] = decode(text)
                if kind == STOP or not child.names:
                    self.stop(child)
                    return
        except ValueError as error:
            os.kill(child.pid, signal.SIGKILL)
            self.give_up(child, failure(str(error)))

    def stop(self, child: "Child") -> None:
        """Stop using a child; another one reads the sections that are left."""
        if child.overtaken:
            os.kill(child.pid, signal.SIGKILL)  # others read the rest
        self.start(self.forget(child))

    def overtake(self, child: "Child") -> None:
        """Let other children read the sections that wait behind the current one of this child."""
        rest = child.names[1:]
        del child.names[1:]
        child.overtaken = True
        half = (len(rest) + 1) // 2  # if another one hangs, the last still begins soon
        self.start(rest[:half])
        self.start(rest[half:])

    def record_timeout(self, name: str, note: str) -> None:
        """Record that a section timed out; `note`: its last call."""
        seconds = self.seconds[name]
        last = "; last: " + note if note else ""
        result = failure("timed out after {:g} s{}".format(round(seconds, 1), last), "timeout")
        result["seconds"] = round(seconds, 4)
        self.results[name] = result

    def next_check(self, child: "Child") -> float:
        """When to check a child that stays silent."""
        end = self.ends[child.names[0]]
        return min(end, child.started + self.moment) if child.names[1:] else end

    def check(self, child: "Child") -> None:
        """Kill or overtake a child whose time is up."""
        now = time.monotonic()
        if now >= self.ends[child.names[0]]:
            os.kill(child.pid, signal.SIGKILL)
            name, *rest = self.forget(child)
            self.record_timeout(name, child.note.read())
            self.start(rest)
        elif now >= self.next_check(child):
            self.overtake(child)

    def finish(self) -> None:
        """Wait until every section has answered or timed out. Raises NobodyReads."""
        while self.running:
            seconds = min(map(self.next_check, self.running.values())) - time.monotonic()
            for reader, event in self.poll.poll(max(0.0, seconds) * 1000):
                if reader in self.running:
                    self.read_messages(self.running[reader])
                elif is_gone(event):
                    raise NobodyReads
                else:
                    self.poll.unregister(reader)  # closed in this process
            for child in list(self.running.values()):
                self.check(child)

    def end(self) -> None:
        """Kill and reap all children."""
        for child in list(self.running.values()):
            os.kill(child.pid, signal.SIGKILL)
            self.forget(child)
        # a child that hangs in the kernel dies later
        reap(self.pids, GRACE)


def reap(pids: "Sequence[int]", seconds: float) -> "dict[int, int]":
    """{pid: wait status} of the children that end within `seconds`."""
    ended = {}
    end = time.monotonic() + seconds
    while True:
        for pid in pids:
            if pid not in ended:
                try:
                    ended_pid, status = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:  # SIGCHLD is ignored: it is gone already
                    ended_pid, status = pid, 0
                if ended_pid:
                    ended[pid] = status
        if len(ended) == len(pids) or time.monotonic() >= end:
            return ended
        time.sleep(0.002)


def epitaph(pid: int) -> str:
    """Why a child closed its pipe."""
    status = reap([pid], GRACE).get(pid)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        return "the collector closed its pipe without an answer"
    if os.WIFSIGNALED(status):
        return "the collector was killed by signal {}".format(os.WTERMSIG(status))
    return "the collector ended without an answer"


def gather(
    sections: "Sequence[str]",
    root: str,
    request: "dict[str, Any]",
    seconds: "float | dict[str, float]",
) -> "dict[str, Any]":
    """{section: result} within `seconds`, for all or {section: seconds}. Raises NobodyReads."""
    if not isinstance(seconds, dict):
        seconds = dict.fromkeys(sections, seconds)
    gathering = Gathering(root, request, seconds)
    try:
        for names in lanes(sections, request):
            gathering.start(names)
        gathering.finish()
    finally:
        gathering.end()
    return gathering.results
