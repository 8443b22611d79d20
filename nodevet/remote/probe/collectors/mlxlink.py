"""The quality of the links of Mellanox NICs, only if a baseline asks for it, by their devices'
names, which may be patterns: mlxlink(1) of MFT, or mstlink(1) of mstflint, which only read.

Each asks the NIC's firmware, and takes a second; it takes root.
"""

import json
import re
from fnmatch import fnmatchcase

from nodevet.remote.probe.files import Reading, SectionError, names, quote, silent
from nodevet.remote.program import ToolError, find, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
CLASS = "/sys/class/infiniband"
PROGRAMS = ("mlxlink", "mstlink")
MOST = 32  # devices
SECONDS = 10  # for each
FIELDS = ("state", "minutes", "effective_ber", "raw_ber", "effective_errors", "link_downs")
OPERATION, ERRORS = "Operational Info", "Physical Counters and BER Info"
BER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4})?[eE][+-]?[0-9]{1,3}\Z|0(?:\.0)?\Z")


def parse_output(text: str) -> "dict[str, Any]":
    """What is said of a link, by title and name. Raises ValueError.

    Lines before the object, warnings, are left out."""
    start = 0 if text.startswith("{") else text.find("\n{") + 1 or text.find("{")
    try:
        answer = json.loads(text[start:] if start >= 0 else "")
    except (ValueError, RecursionError):
        raise ValueError("not JSON: {}".format(quote(text)))
    status, result = (answer.get(name) or {} for name in ("status", "result"))
    if not isinstance(status, dict) or not isinstance(result, dict):
        raise ValueError("neither a status nor a result")
    if status.get("code") not in (0, "0", None):
        raise ValueError("it says {}".format(quote(str(status.get("message", "an error")))))
    output = result.get("output")
    if not isinstance(output, dict):
        raise ValueError("it has no output")
    return output


def said(output: "dict[str, Any]", title: str, name: str) -> str:
    """A text of the output. Raises ValueError if it is not there, or N/A."""
    told = output.get(title)
    text = told.get(name) if isinstance(told, dict) else None
    if not isinstance(text, (str, int, float)) or str(text).strip() in ("", "N/A"):
        raise ValueError("mlxlink does not say it")
    return str(text).strip()[:100]


def parse_ber(text: str) -> float:
    """A rate of bit errors. 15E-255 is what mlxlink says of none.

    >>> parse_ber("15E-255") < 1e-250, parse_ber("6E-10")
    (True, 6e-10)
    """
    if not BER.match(text):
        raise ValueError("not a rate of errors: {}".format(quote(text)))
    return float(text)


def parse_count(text: str) -> int:
    if not re.match(r"[0-9]{1,18}\Z", text):
        raise ValueError("not a number: {}".format(quote(text)))
    return int(text)


def parse_minutes(text: str) -> float:
    if not re.match(r"[0-9]{1,12}(?:\.[0-9]{1,3})?\Z", text):
        raise ValueError("not a number of minutes: {}".format(quote(text)))
    return float(text)


def quality(record: "Reading", text: str) -> "Reading":
    """Fill the record of a link."""
    output = parse_output(text)
    for field, title, name, parse in (
        ("state", OPERATION, "State", str),
        ("minutes", ERRORS, "Time Since Last Clear [Min]", parse_minutes),
        ("effective_ber", ERRORS, "Effective Physical BER", parse_ber),
        ("raw_ber", ERRORS, "Raw Physical BER", parse_ber),
        ("effective_errors", ERRORS, "Effective Physical Errors", parse_count),
        ("link_downs", ERRORS, "Link Down Counter", parse_count),
    ):
        record.take(field, lambda: parse(said(output, title, name)))  # noqa: B023 - called at once
    return record


def link(program: str, device: str) -> "Reading":
    record = Reading(device=device)
    try:
        return quality(record, printed([program, "-d", device, "-c", "--json"], SECONDS))
    except (ToolError, ValueError) as error:
        record.fail_all(FIELDS, str(error)[:200])
        return record


def installed() -> str:
    """The first of the programs that is there. Raises ToolError."""
    for name in PROGRAMS[:-1]:
        try:
            return find(name)
        except ToolError:
            pass
    try:
        return find(PROGRAMS[-1])
    except ToolError:
        raise ToolError("neither mlxlink nor mstlink is on this node")


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    patterns = request.get("asks", {}).get("mlxlink", ())
    if root != "/":
        raise SectionError("mlxlink is run on a running machine only")
    try:
        devices = [
            name
            for name in names(root, CLASS)
            if name.startswith("mlx") and any(fnmatchcase(name, each) for each in patterns)
        ]
    except FileNotFoundError:
        return Reading(links=[], found=[])
    if len(devices) > MOST:
        raise SectionError("{} devices, more than {}".format(len(devices), MOST))
    program = installed() if devices else ""
    section = Reading(links=[], found=devices)
    for device in devices:
        note(device)
        section["links"].append(link(program, device))
    return section
