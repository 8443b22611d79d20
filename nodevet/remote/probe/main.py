"""Gathers the evidence of one node."""

import os
import time

from nodevet.remote.lifetime import pause
from nodevet.remote.probe.children import gather
from nodevet.remote.probe.files import PartialRoot, is_this_machine
from nodevet.remote.probe.messages import failure
from nodevet.remote.probe.sections import (
    limits,
    names,
    not_requested,
    stages,
    unsettled,
    with_counters,
)
from nodevet.remote.request import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

SHARE = 0.8  # of the remaining time, for each stage but the last
PAUSE = 2.0  # seconds before another look
PATIENCE = 45.0  # seconds for all looks after the first
NOT_ASKED = "the probe was not asked for it"  # as nodevet.evidence.core has it


def probe(request: "dict[str, Any]") -> "dict[str, Any]":
    """The evidence document of a request (nodevet.remote.request). Raises RequestError for an
    unknown section, NobodyReads."""
    all_sections = names()
    sections = request.get("sections") or all_sections
    if not isinstance(sections, (list, tuple)) or not set(sections) <= set(all_sections):
        raise RequestError("sections are not among: " + ", ".join(all_sections))
    root = os.path.realpath(request["root"])
    if not is_this_machine(root, request.get("whole_machine", False)):
        root = PartialRoot(root)
    end = time.monotonic() + request["deadline"]
    document = {"schema": 1, "probe": str(request.get("probe", ""))}
    if not os.path.isdir(root):
        why = "root {} is not a directory".format(root)
        document["sections"] = {name: failure(why) for name in sections}
        return document
    sample = request["sample"]
    earlier = read_counters(sections, root, request, end - sample) if sample else {}
    if earlier:
        last = max(result.get("began", 0.0) for result in earlier.values())
        pause(max(0.0, min(last + sample, end) - time.monotonic()), request)
    results = read_all(sections, root, request, end)
    watched = results.get("process_activity", {}).get("data")
    if watched is not None:
        from nodevet.remote.probe.cost import cost

        watched["cost"] = cost()
    if sample:
        document["earlier"] = {
            name: earlier_section(result, results[name]) for name, result in earlier.items()
        }
    for result in results.values():
        result.pop("began", None)
    document["sections"] = results
    return document


def read_all(
    sections: "Sequence[str]", root: str, request: "dict[str, Any]", end: float
) -> "dict[str, Any]":
    """The results of these sections, read in the order of their dependencies."""
    skipped = not_requested(sections, request.get("asks", {}))
    results = {name: failure(NOT_ASKED, "absent") for name in skipped}
    remaining = stages([name for name in sections if name not in results])
    while remaining:
        stage = remaining.pop(0)
        seconds = max(0.0, end - time.monotonic()) * (SHARE if remaining else 1)
        results.update(read_until_settled(stage, root, dict(request, found=results), seconds))
    return results


def read_counters(
    sections: "Sequence[str]", root: str, request: "dict[str, Any]", end: float
) -> "dict[str, Any]":
    """The sections with counters, before the main reading. They get half of the time: a section
    that hangs will hang again."""
    skipped = not_requested(sections, request.get("asks", {}))
    counting_sections = with_counters(name for name in sections if name not in skipped)
    seconds = max(0.0, end - time.monotonic()) / 2
    return gather(
        counting_sections, root, dict(request, found={}), limits(counting_sections, root, seconds)
    )


def earlier_section(result: "dict[str, Any]", now: "dict[str, Any]") -> "dict[str, object]":
    """A section's earlier result; `before_s`: seconds before the later one."""
    if result["status"] != "ok":
        return failure(result["why"], result["status"])
    section = {"status": "ok", "data": result["data"]}
    if "began" in now:
        section["before_s"] = round(now["began"] - result["began"], 3)
    return section


def read_until_settled(
    sections: "Sequence[str]", root: str, request: "dict[str, Any]", seconds: float
) -> "dict[str, Any]":
    """The results of these sections. Some are read again while the node is still booting, or while
    something changes what they read."""
    end = time.monotonic() + seconds
    results = gather(sections, root, request, limits(sections, root, seconds))
    retry_end = min(end, time.monotonic() + PATIENCE)
    while True:
        unsettled_sections = unsettled(results)
        if not unsettled_sections or time.monotonic() + 2 * PAUSE >= retry_end:
            return results
        pause(PAUSE, request)
        seconds_left = retry_end - time.monotonic()
        new_results = gather(
            unsettled_sections, root, request, dict.fromkeys(unsettled_sections, seconds_left)
        )
        if any(result["status"] == "timeout" for result in new_results.values()):
            return results
        results.update(new_results)
