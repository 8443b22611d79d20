"""Gathers the evidence of one node and prints it as one framed JSON document."""

import hashlib
import json
import math
import os
import signal
import sys
import time

from nodevet.remote.probe.children import failure, gather
from nodevet.remote.probe.files import reason
from nodevet.remote.probe.settle import AGAIN, NEEDED, PATIENCE, PAUSE, limits, on_bus, unsettled

SECTIONS = (
    "host",
    "gpu",
    "pci",
    "cpu",
    "cpufreq",
    "numa",
    "memory",
    "modules",
    "kernel_log",
    "filesystems",
    "sysctl",
    "services",
    "packages",
    "processes",
)
LATE = ("processes",)  # needs what the gpu section found
SHARE = (
    0.8  # of the deadline, for everything that is not late; see also nodevet.remote.probe.settle
)
DEADLINE = 30.0  # seconds
LONGEST = 3600.0
ASKS = 500  # names of a baseline, of all sections together
NAME = 256  # characters of one
REQUEST_LIMIT = 1 << 20
REQUEST_SECONDS = 60  # for the request to arrive


class RequestError(Exception):
    """The request cannot be served; the message says why."""


def number_of_seconds(value):
    """A deadline from a request. Raises RequestError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError("deadline is not a number of seconds")
    if not math.isfinite(value) or not 0 < value <= LONGEST:
        raise RequestError("deadline is not between 0 and {:g} s".format(LONGEST))
    return float(value)


def asked_for(asks):
    """The names that a baseline asks for, by section. Raises RequestError."""
    if not isinstance(asks, dict) or not all(isinstance(names, list) for names in asks.values()):
        raise RequestError("asks is not an object of lists")
    names = [name for listed in asks.values() for name in listed]
    if not all(isinstance(name, str) and len(name) <= NAME for name in names):
        raise RequestError("asks holds what is no name")
    if len(names) > ASKS:
        raise RequestError("asks holds more than {} names".format(ASKS))
    return asks


def probe(request):
    """The evidence document, as a dict. Raises RequestError.

    `request`: root (/), deadline in seconds (30), sections (all), probe (a version), asks
    ({section: names}, of sysctl, services and packages), whole_machine (false): if true, NVML,
    the clock and the processes that are seen are those of the machine under `root`, even in a
    container.
    """
    root = request.get("root") or "/"
    if not isinstance(root, str) or not root.startswith("/") or "\0" in root:
        raise RequestError("root is not an absolute path")
    seconds = number_of_seconds(request.get("deadline", DEADLINE))
    wanted = request.get("sections") or SECTIONS
    if not isinstance(wanted, (list, tuple)) or not set(wanted) <= set(SECTIONS):
        raise RequestError("sections are not among: " + ", ".join(SECTIONS))
    if not isinstance(request.get("whole_machine", False), bool):
        raise RequestError("whole_machine is neither true nor false")
    request = dict(request, asks=asked_for(request.get("asks") or {}))
    root = os.path.realpath(root)
    end = time.monotonic() + seconds
    if not os.path.isdir(root):
        results = {name: failure("root {} is not a directory".format(root)) for name in wanted}
    else:
        late = [name for name in wanted if name in LATE]
        early = [name for name in wanted if name not in LATE]
        results = settled(early, root, request, seconds * (SHARE if late else 1))
        found = dict(request, found=results)
        results.update(gather(late, root, found, max(0.0, end - time.monotonic())))
    return {"schema": 1, "probe": str(request.get("probe", "")), "sections": results}


def settled(wanted, root, request, seconds):
    """The results of these sections; those of the GPUs anew while a node that has just booted
    is still bringing them up."""
    end = time.monotonic() + seconds
    results = gather(wanted, root, request, limits(wanted, seconds, on_bus(root)))
    patient = min(end, time.monotonic() + PATIENCE)
    if not set(NEEDED) <= set(wanted):
        return results
    while unsettled(results) and time.monotonic() + 2 * PAUSE < patient:
        time.sleep(PAUSE)
        left = patient - time.monotonic()
        again = gather(AGAIN, root, request, dict.fromkeys(AGAIN, left))
        if any(result["status"] == "timeout" for result in again.values()):
            break
        results.update(again)
    return results


def frame(text, nonce):
    """The answer with its length and SHA-256, so that noise and truncation are seen."""
    digest = hashlib.sha256(text).hexdigest()
    head = "\n\x1eNODEVET {} {} {}\n".format(nonce, len(text), digest)
    return head.encode("ascii") + text + b"\n"


def receive(stdin):
    """The request, as a dict, and when it arrived. Raises RequestError."""
    try:
        request = json.loads(stdin.read(REQUEST_LIMIT).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError("not JSON: " + reason(error))
    if not isinstance(request, dict):
        raise RequestError("not a JSON object")
    request["arrived_s"] = time.time()
    nonce = request.get("nonce", "")
    if not isinstance(nonce, str) or not all("!" <= letter <= "~" for letter in nonce):
        raise RequestError("nonce is not one word of ASCII")
    return request


def keep_standard_descriptors():
    """Fill 0, 1 and 2 where they are closed, so that no pipe of ours takes their place."""
    spare = os.open(os.devnull, os.O_RDWR)
    while spare <= 2:
        spare = os.open(os.devnull, os.O_RDWR)
    os.close(spare)


def complain(text, program="probe"):
    """A sentence on stderr, where there is one."""
    line = "nodevet {}: {}\n".format(program, text)
    os.write(2, line.encode("ascii", "backslashreplace"))


def answer(stdin, stdout):
    """Read a request, write the framed evidence; returns an exit code as `serve` has it."""
    signal.alarm(REQUEST_SECONDS)
    try:
        request = receive(stdin)
        seconds = number_of_seconds(request.get("deadline", DEADLINE))
        # should this process itself hang, it must not stay on the node
        signal.setitimer(signal.ITIMER_REAL, seconds + 10)
        text = json.dumps(probe(request), allow_nan=False, separators=(",", ":"))
    except RequestError as error:
        complain("the request is not valid: {}".format(error))
        return 2
    try:
        stdout.write(frame(text.encode("ascii"), request.get("nonce", "")))
        stdout.flush()
    except OSError as error:
        complain("the answer cannot be written: " + reason(error))
        return 1
    return 0


def serve(stdin, stdout, answer=answer, program="probe"):
    """Answer one request and end this process.

    Exit codes: 0 answered, 1 a fault or nobody took the answer, 2 the request is not valid.
    """
    code = 1
    try:
        keep_standard_descriptors()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        code = answer(stdin, stdout)
    except Exception as error:  # a fault of ours must not end in a traceback on the node
        complain("{}: {}".format(type(error).__name__, error), program)
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
