"""Runs every collector in a child of its own, and lives whatever they do.

A collector that hangs, crashes or floods costs its own section and nothing else:
a GPU that has fallen off the bus can block an NVML call for ever. Children are
killed at the deadline, and by the kernel should this process be gone before them.

A child sends messages: one letter, a length in four bytes, and so many bytes.
N is a note of what it does right now, A its answer and the end.
"""

import json
import os
import select
import signal
import struct
import time

from nodevet.remote.probe.files import Absent, SectionError, reason
from nodevet.remote.probe.sections import collector

STATUSES = ("ok", "absent", "denied", "error", "timeout")
OUTPUT_LIMIT = 16 << 20
GRACE = 0.5  # seconds for killed children to be gone
HEADER = struct.Struct("!cI")
NOTE, ANSWER = b"N", b"A"
NOTE_LIMIT = 200  # bytes
PR_SET_PDEATHSIG = 1


class Collecting(object):
    """A running collector: its process, the pipe it writes to, what has come so far."""

    def __init__(self, name, pid, reader):
        self.name = name
        self.pid = pid
        self.reader = reader
        self.buffer = bytearray()
        self.received = 0
        self.note = ""

    def take(self, chunk):
        """Add what it wrote; returns its answer once that is whole. Raises ValueError."""
        self.received += len(chunk)
        if self.received > OUTPUT_LIMIT:
            raise ValueError("more than {} MiB of output".format(OUTPUT_LIMIT >> 20))
        self.buffer += chunk
        while len(self.buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer)
            limit = {NOTE: NOTE_LIMIT, ANSWER: OUTPUT_LIMIT}.get(kind, -1)
            if length > limit:
                raise ValueError("the collector wrote something that is not a message")
            end = HEADER.size + length
            if len(self.buffer) < end:
                return None
            text = bytes(self.buffer[HEADER.size : end])
            del self.buffer[:end]
            if kind == ANSWER:
                return text
            self.note = text.decode("ascii", "backslashreplace")
        return None


def failure(why, status="error"):
    return {"status": status, "why": why}


def section(name, root, request):
    """One section's result, whatever happens inside its collector."""
    started = time.monotonic()
    try:
        result = {"status": "ok", "data": collector(name).collect(root, request)}
    except Absent as error:
        result = failure(str(error) or "absent", "absent")
    except SectionError as error:
        result = failure(str(error) or "failed")
    except OSError as error:
        denied = isinstance(error, PermissionError)
        why = "{}: {}".format(reason(error), error.filename) if error.filename else reason(error)
        result = failure(why, "denied" if denied else "error")
    except Exception as error:
        result = failure("{}: {}".format(type(error).__name__, error)[:200])
    result["seconds"] = round(time.monotonic() - started, 4)
    return result


def encode(result):
    """A result as JSON in ASCII; one that JSON cannot hold becomes an error."""
    try:
        return json.dumps(result, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(failure("the result is not JSON: " + reason(error))).encode("ascii")


def decode(text):
    """A result from a child's answer; anything else becomes an error."""
    try:
        result = json.loads(text.decode("ascii"))
        json.dumps(result, allow_nan=False)
    except (ValueError, RecursionError) as error:
        return failure("the collector's answer is not JSON: " + reason(error))
    if not isinstance(result, dict) or result.get("status") not in STATUSES:
        return failure("the collector's answer is not a result")
    return result


def send(writer, kind, text):
    """Write one message, whole."""
    rest = HEADER.pack(kind, len(text)) + text
    while rest:
        rest = rest[os.write(writer, rest) :]


def find_prctl():
    """prctl(2), or None on a Python without ctypes: then only the alarm guards a child."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None


def die_with_parent(prctl, parent, seconds):
    """Have the kernel kill this process when its parent is gone, or after the deadline."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def spawn(name, root, request, seconds, prctl, unwanted):
    """Start one collector in a child. Raises OSError. `unwanted`: descriptors it must not keep."""
    reader, writer = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid:
        os.close(writer)
        return Collecting(name, pid, reader)
    try:
        die_with_parent(prctl, parent, seconds)
        for descriptor in unwanted + [reader]:
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # what a library prints must not reach our answer
            os.dup2(null, descriptor)

        def note(text):
            send(writer, NOTE, text.encode("ascii", "backslashreplace")[:NOTE_LIMIT])

        send(writer, ANSWER, encode(section(name, root, dict(request, note=note))))
    finally:
        os._exit(0)


def reap(pids, seconds):
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


def epitaph(pid):
    """Why a child closed its pipe without an answer."""
    status = reap([pid], GRACE).get(pid)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        return "the collector closed its pipe without an answer"
    if os.WIFSIGNALED(status):
        return "the collector was killed by signal {}".format(os.WTERMSIG(status))
    return "the collector ended without an answer"


def listen(child):
    """Read once from a child; its result, or None while it goes on."""
    chunk = os.read(child.reader, 1 << 16)
    if not chunk:
        return failure(epitaph(child.pid))
    try:
        text = child.take(chunk)
    except ValueError as error:
        os.kill(child.pid, signal.SIGKILL)
        return failure(str(error))
    return None if text is None else decode(text)


def late(child, seconds):
    """The result of a child that did not answer in time."""
    last = "; last: " + child.note if child.note else ""
    result = failure("timed out after {:g} s{}".format(round(seconds, 1), last), "timeout")
    result["seconds"] = round(seconds, 4)
    return result


def gather(wanted, root, request, seconds):
    """The results of these sections, by name, within so many seconds; a dict has those of each."""
    if not isinstance(seconds, dict):
        seconds = dict.fromkeys(wanted, seconds)
    started = time.monotonic()
    running = {}  # reader: child
    results = {}
    pids = []
    prctl = find_prctl()
    poll = select.poll()
    try:
        for name in wanted:
            try:
                child = spawn(name, root, request, seconds[name], prctl, list(running))
            except OSError as error:
                results[name] = failure("cannot start the collector: " + reason(error))
                continue
            running[child.reader] = child
            pids.append(child.pid)
            poll.register(child.reader, select.POLLIN)
        while running:
            left = min(seconds[child.name] for child in running.values())
            left -= time.monotonic() - started
            for reader, _ in poll.poll(max(0.0, left) * 1000):
                result = listen(running[reader])
                if result is not None:
                    results[running.pop(reader).name] = result
                    poll.unregister(reader)
                    os.close(reader)
            passed = time.monotonic() - started
            for reader, child in list(running.items()):
                if passed >= seconds[child.name]:
                    results[child.name] = late(child, seconds[child.name])
                    os.kill(child.pid, signal.SIGKILL)
                    poll.unregister(reader)
                    os.close(reader)
                    del running[reader]
    finally:
        for child in running.values():
            os.kill(child.pid, signal.SIGKILL)
            os.close(child.reader)
        # one that hangs in the kernel dies later, and is not waited for
        reap(pids, GRACE)
    return results
