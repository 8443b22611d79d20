"""DCGM's view of the node, only if a baseline asks for it.

`health` runs dcgmi health -c -j and dcgmi discovery -l, which only read from the host engine. A
path is a file with a diagnostic's results (dcgmi diag -j). nodevet never starts a diagnostic.
"""

import os
import re
import stat
import time

from nodevet.remote.probe.dcgm_json import parse_diag, parse_health
from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    no_note,
    quote,
    read,
    reason,
)
from nodevet.remote.program import find_program, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
HEALTH = "health"
FIRST_USER = 1000
SECONDS = 12  # for each of the programs
OUTPUT = 4 << 20  # bytes
COUNT = re.compile(r"^([0-9]{1,4}) GPUs? found\.", re.MULTILINE)
DIAGNOSTIC = (
    "age_s", "results", "passed", "not_passed", "driver_version", "dcgm_version", "serials",
)  # fmt: skip
NOT_ASKED = "the probe was not asked for it"


def dcgmi_output(dcgmi: str, *arguments: str) -> str:
    """dcgmi's output. Raises SectionError."""
    code, text, stderr = run((dcgmi,) + arguments, SECONDS, OUTPUT)
    if code:
        message = " ".join((stderr or text).split())
        raise SectionError("dcgmi ended with {}: {}".format(code, quote(message)))
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
    dcgmi = find_program("dcgmi")
    overall, incidents = parse_health(dcgmi_output(dcgmi, "health", "-c", "-j"))
    records = [
        Reading(part=part, watch=watch, status=status, text=text)
        for part, watch, status, text in incidents
    ]
    return overall, records, parse_count(dcgmi_output(dcgmi, "discovery", "-l"))


def written_at(root: str, file: int) -> float:
    """When an open file was written. Raises ValueError if an ordinary user of this machine may have
    written it: anybody can create a file in /tmp."""
    status = os.fstat(file)
    is_users = status.st_uid >= FIRST_USER and status.st_uid != os.geteuid()
    if root == "/" and (is_users or status.st_mode & stat.S_IWOTH):
        raise ValueError("any user may have written it: keep it in a folder of root")
    return status.st_mtime


def diagnostic(root: str, path: str) -> "Reading":
    """The record of a diagnostic's file."""
    record = Reading(path=path)
    try:
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError("not an absolute path")
        written: "list[float]" = []
        text = read(root, path, lambda file: written.append(written_at(root, file)))
        results = parse_diag(text)
        results["age_s"] = int(time.time() - written[0])
        results["not_passed"] = [Reading(**row) for row in results["not_passed"]]
        record.update(results)
    except (OSError, ValueError) as error:
        record.fail_all(DIAGNOSTIC, reason(error))
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    questions = sorted(set(request.get("asks", {}).get("dcgm", ())))
    section = Reading()
    fields = ("overall", "incidents", "gpus")
    if HEALTH in questions:
        note("dcgmi")
        try:
            section.update(zip(fields, health(root)))
        except SectionError as error:
            section.fail_all(fields, str(error))
        except ValueError as error:
            section.fail_all(fields, "dcgmi health: " + reason(error))
    else:
        section.fail_all(fields, NOT_ASKED)
    section["diagnostics"] = [diagnostic(root, path) for path in questions if path != HEALTH]
    return section
