"""Runs every collector in a child of its own and prints one framed JSON document.

A collector that hangs, crashes or floods costs its own section and nothing else:
a GPU that has fallen off the bus can block an NVML call for ever. Children are
killed at the deadline, and kill themselves by SIGALRM should this process be gone.
"""

import hashlib
import importlib
import json
import os
import select
import signal
import sys
import time

from nodevet.probe.files import Absent, reason

SECTIONS = ("host", "gpu", "pci", "cpu", "cpufreq", "numa", "memory", "modules", "processes")
LATE = ("processes",)  # needs what the gpu section found
SHARE = 0.8  # of the deadline, for everything that is not late
OUTPUT_LIMIT = 16 << 20


def section(name, root, request):
    """One section's result, whatever happens inside its collector."""
    started = time.time()
    try:
        collect = importlib.import_module("nodevet.probe." + name).collect
        result = {"status": "ok", "data": collect(root, request)}
    except Absent as error:
        result = {"status": "absent", "why": str(error) or "absent"}
    except PermissionError as error:
        result = {"status": "denied", "why": str(error)}
    except Exception as error:
        result = {"status": "error", "why": reason(error)}
    result["seconds"] = round(time.time() - started, 4)
    return result


def spawn(name, root, request, seconds):
    """Start one collector in a child; returns (pid, file descriptor of its answer)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.close(reader)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds + 1)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # what a library prints must not reach our answer
            os.dup2(null, descriptor)
        text = json.dumps(section(name, root, request)).encode("ascii")
        with os.fdopen(writer, "wb") as file:
            file.write(text)
    finally:
        os._exit(0)


def gather(wanted, root, request, seconds):
    """The results of these sections, by name, within so many seconds."""
    end = time.monotonic() + seconds
    running = {}
    results = {}
    for name in wanted:
        try:
            pid, reader = spawn(name, root, request, seconds)
        except OSError as error:
            results[name] = {"status": "error", "why": "cannot fork: " + reason(error)}
            continue
        running[reader] = (name, pid, [])
    while running:
        left = end - time.monotonic()
        ready = select.select(list(running), [], [], left)[0] if left > 0 else []
        if not ready:
            break
        for reader in ready:
            name, pid, chunks = running[reader]
            chunk = os.read(reader, 1 << 16)
            if chunk:
                chunks.append(chunk)
                if sum(map(len, chunks)) <= OUTPUT_LIMIT:
                    continue
                os.kill(pid, signal.SIGKILL)
                results[name] = {"status": "error", "why": "more than 16 MiB of output"}
            del running[reader]
            os.close(reader)
            status = os.waitpid(pid, 0)[1]
            if name not in results:
                results[name] = answer(b"".join(chunks), status)
    for reader, (name, pid, _) in running.items():
        os.kill(pid, signal.SIGKILL)
        os.close(reader)
        # one that hangs in the kernel dies later; do not wait for it
        os.waitpid(pid, os.WNOHANG)
        results[name] = {
            "status": "timeout",
            "why": "no answer within {:g} s".format(seconds),
            "seconds": seconds,
        }
    return results


def answer(text, status):
    """A child's result from what it wrote and how it ended."""
    try:
        return json.loads(text.decode("ascii"))
    except ValueError:
        if os.WIFSIGNALED(status):
            return {
                "status": "error",
                "why": "the collector died of signal {}".format(os.WTERMSIG(status)),
            }
        return {"status": "error", "why": "the collector ended without an answer"}


def probe(request):
    """The evidence document, as a dict. `request`: root, deadline in seconds, sections, probe."""
    root = request.get("root") or "/"
    wanted = request.get("sections") or SECTIONS
    seconds = float(request.get("deadline") or 30)
    end = time.monotonic() + seconds
    early = [name for name in wanted if name not in LATE]
    late = [name for name in wanted if name in LATE]
    results = gather(early, root, request, seconds * SHARE)
    if late:
        found = dict(request, found=results)
        results.update(gather(late, root, found, max(end - time.monotonic(), 1.0)))
    return {"schema": 1, "probe": request.get("probe", ""), "sections": results}


def frame(text, nonce):
    """The answer with its length and SHA-256, so that noise and truncation are seen."""
    digest = hashlib.sha256(text).hexdigest()
    head = "\n\x1eNODEVET {} {} {}\n".format(nonce, len(text), digest)
    return head.encode("ascii") + text + b"\n"


def serve(stdin, stdout):
    """Read a request from stdin, write the framed evidence to stdout."""
    request = json.loads(stdin.read().decode("utf-8"))
    text = json.dumps(probe(request), separators=(",", ":")).encode("ascii")
    stdout.write(frame(text, request.get("nonce", "")))
    stdout.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
