"""Reads sections in children, and lives whatever they do.

A child reads several sections, one after the other: a lane. A section that hangs, crashes or
floods costs itself and nothing else. Whoever has to wait for it for longer than a moment is read
by another child meanwhile, and so is what was to follow one that crashed, or that did not leave
its child as it was. A GPU that has fallen off the bus can block an NVML call for ever: what may
hang, or takes long, says so (`ALONE`) and has a child of its own from the beginning.

Children are killed at the deadline, and by the kernel should this process be gone before them. So
they are as soon as nobody reads the answer any more: a data loader that is measured must not go on
after the person who started it has gone.
"""

import os
import select
import signal
import time

from nodevet.remote.guard import find_prctl
from nodevet.remote.probe import lane
from nodevet.remote.probe.files import reason
from nodevet.remote.probe.messages import ANSWER, STOP, Messages, Note, decode, failure
from nodevet.remote.probe.sections import lanes
from nodevet.remote.reader import NobodyReads, is_gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

GRACE = 0.5  # seconds for killed children to be gone
MOMENT = 1.0  # seconds that a lane may take before what waits in it is read elsewhere
SHARE = 0.1  # of the time there is, if that is less
CHUNK = 1 << 16  # bytes in one read(2)


class Child(object):
    """A running child: its process, the pipe it writes to, the sections that it is to answer."""

    def __init__(
        self, names: "Sequence[str]", pid: int, reader: int, note: "Note", now: float
    ) -> None:
        self.names = list(names)  # the first of them is being read
        self.pid = pid
        self.reader = reader
        self.started = now
        self.messages = Messages()
        self.note = note
        self.overtaken = False


class Gathering(object):
    """The children that read some sections, and the results that have come."""

    def __init__(self, root: str, request: "dict[str, Any]", seconds: "dict[str, float]") -> None:
        """`seconds`: {section: its time from now on}."""
        now = time.monotonic()
        self.root = root
        self.request = request
        self.seconds = seconds
        self.ends = {name: now + seconds[name] for name in seconds}
        self.moment = min([MOMENT] + [SHARE * each for each in seconds.values()])
        self.results: "dict[str, dict[str, Any]]" = {}
        self.running: "dict[int, Child]" = {}  # by reader
        self.pids: "list[int]" = []
        self.prctl = find_prctl()
        self.poll = select.poll()
        self.answer_to = request.get("answer_to")
        if self.answer_to is not None:
            self.poll.register(self.answer_to, 0)  # it is told of the end even so

    def start(self, names: "Sequence[str]") -> None:
        """Have a child read these, those whose time is up apart."""
        now = time.monotonic()
        left = [name for name in names if now < self.ends[name]]
        for name in names:
            if name not in left:
                self.late(name, "")
        if not left:
            return
        try:
            child = self.spawn(left, now)
        except OSError as error:
            why = "cannot start the collector: " + reason(error)
            self.results.update((name, failure(why)) for name in left)
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
            for descriptor in (0, 1, 2):  # what a library prints must not reach our answer
                os.dup2(null, descriptor)
            told = (self.root, self.request, writer, note, self.prctl, parent)
            lane.read_all(names, self.ends, *told)
        finally:
            os._exit(0)

    def forget(self, child: "Child") -> "list[str]":
        """Hear no more of a child; returns the sections that it did not answer."""
        self.poll.unregister(child.reader)
        os.close(child.reader)
        del self.running[child.reader]
        return child.names

    def give_up(self, child: "Child", result: "dict[str, Any]") -> None:
        """The section that a child reads ends with this result, and another reads what follows."""
        name, *rest = self.forget(child)
        self.results[name] = result
        self.start(rest)

    def hear(self, child: "Child") -> None:
        """Take what a child has written."""
        chunk = os.read(child.reader, CHUNK)
        if not chunk:
            self.give_up(child, failure(epitaph(child.pid)))
            return
        try:
            for kind, text in child.messages.take(chunk):
                if kind == ANSWER:
                    self.results[child.names.pop(0)] = decode(text)
                if kind == STOP or not child.names:
                    self.done(child)
                    return
        except ValueError as error:
            os.kill(child.pid, signal.SIGKILL)
            self.give_up(child, failure(str(error)))

    def done(self, child: "Child") -> None:
        """A child goes no further; another one does, if sections are left."""
        if child.overtaken:
            os.kill(child.pid, signal.SIGKILL)  # it goes on with what others have
        self.start(self.forget(child))

    def overtake(self, child: "Child") -> None:
        """Leave a child with the section that it reads; others read what waits for it."""
        rest = child.names[1:]
        del child.names[1:]
        child.overtaken = True
        half = (len(rest) + 1) // 2  # should more of them hang, the last still begins soon
        self.start(rest[:half])
        self.start(rest[half:])

    def late(self, name: str, note: str) -> None:
        """A section did not answer in time."""
        seconds = self.seconds[name]
        last = "; last: " + note if note else ""
        result = failure("timed out after {:g} s{}".format(round(seconds, 1), last), "timeout")
        result["seconds"] = round(seconds, 4)
        self.results[name] = result

    def due(self, child: "Child") -> float:
        """When something is to be done about a child that says nothing."""
        end = self.ends[child.names[0]]
        return min(end, child.started + self.moment) if child.names[1:] else end

    def look_after(self, child: "Child") -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self.ends[child.names[0]]:
            os.kill(child.pid, signal.SIGKILL)
            name, *rest = self.forget(child)
            self.late(name, child.note.read())
            self.start(rest)
        elif now >= self.due(child):
            self.overtake(child)

    def finish(self) -> None:
        """Wait for every answer, and for every time that is up. Raises NobodyReads."""
        while self.running:
            left = min(map(self.due, self.running.values())) - time.monotonic()
            for reader, event in self.poll.poll(max(0.0, left) * 1000):
                if reader in self.running:
                    self.hear(self.running[reader])
                elif is_gone(event):
                    raise NobodyReads
                else:
                    self.poll.unregister(reader)  # it is closed here
            for child in list(self.running.values()):
                self.look_after(child)

    def end(self) -> None:
        """Leave nothing behind."""
        for child in list(self.running.values()):
            os.kill(child.pid, signal.SIGKILL)
            self.forget(child)
        # one that hangs in the kernel dies later, and is not waited for
        reap(self.pids, GRACE)


def reap(pids: "Sequence[int]", seconds: float) -> "dict[int, int]":
    """Wait at most so long for these children to end; {pid: wait status} of those that did."""
    ended = {}
    end = time.monotonic() + seconds
    while True:
        for pid in pids:
            if pid not in ended:
                try:
                    done, status = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:  # someone ignores SIGCHLD: it is gone already
                    done, status = pid, 0
                if done:
                    ended[pid] = status
        if len(ended) == len(pids) or time.monotonic() >= end:
            return ended
        time.sleep(0.002)


def epitaph(pid: int) -> str:
    """Why a child closed its pipe without an answer."""
    status = reap([pid], GRACE).get(pid)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        return "the collector closed its pipe without an answer"
    if os.WIFSIGNALED(status):
        return "the collector was killed by signal {}".format(os.WTERMSIG(status))
    return "the collector ended without an answer"


def gather(
    wanted: "Sequence[str]",
    root: str,
    request: "dict[str, Any]",
    seconds: "float | dict[str, float]",
) -> "dict[str, Any]":
    """The results of these sections, by name, within so many seconds; a dict has those of each.
    Raises NobodyReads once that is so of the descriptor `answer_to` of the request."""
    if not isinstance(seconds, dict):
        seconds = dict.fromkeys(wanted, seconds)
    gathering = Gathering(root, request, seconds)
    try:
        for names in lanes(wanted, request):
            gathering.start(names)
        gathering.finish()
    finally:
        gathering.end()
    return gathering.results
