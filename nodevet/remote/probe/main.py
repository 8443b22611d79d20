"""Gathers the evidence of one node."""

import os
import time

from nodevet.remote.probe.children import gather
from nodevet.remote.probe.messages import failure
from nodevet.remote.probe.sections import limits, names, stages, unasked, unsettled
from nodevet.remote.request import RequestError

SHARE = 0.8  # of what is left of the deadline, for a stage that is not the last
PAUSE = 2.0  # seconds before another look
PATIENCE = 45.0  # seconds for all looks after the first
NOT_ASKED = "the probe was not asked for it"  # as nodevet.evidence.core has it


def probe(request):
    """The evidence document, as a dict; `request`: see nodevet.remote.request. Raises RequestError
    if a section is not known."""
    known = names()
    wanted = request.get("sections") or known
    if not isinstance(wanted, (list, tuple)) or not set(wanted) <= set(known):
        raise RequestError("sections are not among: " + ", ".join(known))
    root = os.path.realpath(request["root"])
    end = time.monotonic() + request["deadline"]
    results = {}
    if not os.path.isdir(root):
        results = {name: failure("root {} is not a directory".format(root)) for name in wanted}
    else:
        left = unasked(wanted, request.get("asks", {}))
        results = {name: failure(NOT_ASKED, "absent") for name in left}
        ahead = stages([name for name in wanted if name not in results])
        while ahead:
            stage = ahead.pop(0)
            seconds = max(0.0, end - time.monotonic()) * (SHARE if ahead else 1)
            results.update(settled(stage, root, dict(request, found=results), seconds))
    return {"schema": 1, "probe": str(request.get("probe", "")), "sections": results}


def settled(wanted, root, request, seconds):
    """The results of these sections; some are read again while a node that has just booted is
    still bringing up what they read."""
    end = time.monotonic() + seconds
    results = gather(wanted, root, request, limits(wanted, root, seconds))
    patient = min(end, time.monotonic() + PATIENCE)
    while True:
        again = unsettled(results)
        if not again or time.monotonic() + 2 * PAUSE >= patient:
            return results
        time.sleep(PAUSE)
        left = patient - time.monotonic()
        newer = gather(again, root, request, dict.fromkeys(again, left))
        if any(result["status"] == "timeout" for result in newer.values()):
            return results
        results.update(newer)
