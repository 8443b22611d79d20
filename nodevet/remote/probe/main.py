"""Gathers the evidence of one node."""

import os
import time

from nodevet.remote.probe.children import gather
from nodevet.remote.probe.files import PartialRoot, is_this_machine
from nodevet.remote.probe.messages import failure
from nodevet.remote.probe.sections import counting, limits, names, stages, unasked, unsettled
from nodevet.remote.reader import pause
from nodevet.remote.request import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

SHARE = 0.8  # of what is left of the deadline, for a stage that is not the last
PAUSE = 2.0  # seconds before another look
PATIENCE = 45.0  # seconds for all looks after the first
NOT_ASKED = "the probe was not asked for it"  # as nodevet.evidence.core has it


def probe(request: "dict[str, Any]") -> "dict[str, Any]":
    """The evidence document, as a dict; `request`: see nodevet.remote.request. Raises RequestError
    if a section is not known, NobodyReads if nobody waits for it any more."""
    known = names()
    wanted = request.get("sections") or known
    if not isinstance(wanted, (list, tuple)) or not set(wanted) <= set(known):
        raise RequestError("sections are not among: " + ", ".join(known))
    root = os.path.realpath(request["root"])
    if not is_this_machine(root, request.get("whole_machine", False)):
        root = PartialRoot(root)
    end = time.monotonic() + request["deadline"]
    document = {"schema": 1, "probe": str(request.get("probe", ""))}
    if not os.path.isdir(root):
        why = "root {} is not a directory".format(root)
        document["sections"] = {name: failure(why) for name in wanted}
        return document
    sample = request["sample"]
    earlier = counted(wanted, root, request, end - sample) if sample else {}
    if earlier:
        last = max(result.get("began", 0.0) for result in earlier.values())
        pause(max(0.0, min(last + sample, end) - time.monotonic()), request)
    results = read_all(wanted, root, request, end)
    if sample:
        document["earlier"] = {
            name: before(result, results[name]) for name, result in earlier.items()
        }
    for result in results.values():
        result.pop("began", None)
    document["sections"] = results
    return document


def read_all(
    wanted: "Sequence[str]", root: str, request: "dict[str, Any]", end: float
) -> "dict[str, Any]":
    """The results of these sections, in the order in which they need one another."""
    left = unasked(wanted, request.get("asks", {}))
    results = {name: failure(NOT_ASKED, "absent") for name in left}
    ahead = stages([name for name in wanted if name not in results])
    while ahead:
        stage = ahead.pop(0)
        seconds = max(0.0, end - time.monotonic()) * (SHARE if ahead else 1)
        results.update(settled(stage, root, dict(request, found=results), seconds))
    return results


def counted(
    wanted: "Sequence[str]", root: str, request: "dict[str, Any]", end: float
) -> "dict[str, Any]":
    """The sections that hold counters, once before all are read. They have half of the time at
    most: what hangs then is to hang again."""
    found = counting(wanted)
    seconds = max(0.0, end - time.monotonic()) / 2
    return gather(found, root, dict(request, found={}), limits(found, root, seconds))


def before(result: "dict[str, Any]", now: "dict[str, Any]") -> "dict[str, object]":
    """A section as it was, with how long `before_s` it was read again."""
    if result["status"] != "ok":
        return failure(result["why"], result["status"])
    found = {"status": "ok", "data": result["data"]}
    if "began" in now:
        found["before_s"] = round(now["began"] - result["began"], 3)
    return found


def settled(
    wanted: "Sequence[str]", root: str, request: "dict[str, Any]", seconds: float
) -> "dict[str, Any]":
    """The results of these sections; some are read again while a node that has just booted is
    still bringing up what they read, or while what they read is being changed."""
    end = time.monotonic() + seconds
    results = gather(wanted, root, request, limits(wanted, root, seconds))
    patient = min(end, time.monotonic() + PATIENCE)
    while True:
        again = unsettled(results)
        if not again or time.monotonic() + 2 * PAUSE >= patient:
            return results
        pause(PAUSE, request)
        left = patient - time.monotonic()
        newer = gather(again, root, request, dict.fromkeys(again, left))
        if any(result["status"] == "timeout" for result in newer.values()):
            return results
        results.update(newer)
