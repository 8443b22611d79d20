"""DCGM's view of the node, only if a baseline asks for it.

`health`: dcgmi health -c -j and dcgmi discovery -l are run, which only read what the host engine
knows. A path: the file in which a diagnostic's results were kept (dcgmi diag -j). No diagnostic is
ever started.
"""

import os
import re
import stat
import time

from nodevet.remote.probe.dcgm_json import parse_diag, parse_health
from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    path_under,
    quote,
    read,
    reason,
    silent,
)
from nodevet.remote.program import find, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
HEALTH = "health"
SECONDS = 12  # for each of the programs
OUTPUT = 4 << 20  # bytes
COUNT = re.compile(r"^([0-9]{1,4}) GPUs? found\.", re.MULTILINE)
DIAGNOSTIC = (
    "age_s", "results", "passed", "not_passed", "driver_version", "dcgm_version", "serials",
)  # fmt: skip
NOT_ASKED = "the probe was not asked for it"


def told(dcgmi: str, *words: str) -> str:
    """What dcgmi prints. Raises SectionError."""
    code, text, complaint = run((dcgmi,) + words, SECONDS, OUTPUT)
    if code:
        said = " ".join((complaint or text).split())
        raise SectionError("dcgmi ended with {}: {}".format(code, quote(said)))
    return text


def parse_count(text: str) -> int:
    """
    >>> parse_count("8 GPUs found.\\n+--------+")
    8
    """
    match = COUNT.search(text)
    if match is None:
        raise ValueError("dcgmi discovery does not say how many GPUs it found")
    return int(match.group(1))


def health(root: str) -> "tuple[str, list[Reading], int]":
    """(overall, incidents as records, GPUs) of the host engine. Raises SectionError, ValueError."""
    if root != "/":
        raise SectionError("dcgmi is run on a running machine only")
    dcgmi = find("dcgmi")
    overall, incidents = parse_health(told(dcgmi, "health", "-c", "-j"))
    records = [
        Reading(part=part, watch=watch, status=status, text=text)
        for part, watch, status, text in incidents
    ]
    return overall, records, parse_count(told(dcgmi, "discovery", "-l"))


def diagnostic(root: str, path: str) -> "Reading":
    """The results in a file."""
    record = Reading(path=path)
    try:
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError("not an absolute path")
        found = parse_diag(read(root, path))
        status = os.stat(path_under(root, path))
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        found["age_s"] = max(0, int(time.time() - status.st_mtime))
        found["not_passed"] = [Reading(**each) for each in found["not_passed"]]
        record.update(found)
    except (OSError, ValueError) as error:
        record.fail_all(DIAGNOSTIC, reason(error))
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    asked = sorted(set(request.get("asks", {}).get("dcgm", ())))
    found = Reading()
    fields = ("overall", "incidents", "gpus")
    if HEALTH in asked:
        note("dcgmi")
        try:
            found.update(zip(fields, health(root)))
        except SectionError as error:
            found.fail_all(fields, str(error))
        except ValueError as error:
            found.fail_all(fields, "dcgmi health: " + reason(error))
    else:
        found.fail_all(fields, NOT_ASKED)
    found["diagnostics"] = [diagnostic(root, path) for path in asked if path != HEALTH]
    return found
