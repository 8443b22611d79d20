"""The link quality of the Mellanox NICs that a baseline names or matches with patterns, by
mlxlink(1) of MFT or mstlink(1) of mstflint, which only read.

They ask the NIC's firmware, take a second each, and need root.
"""

import json
import re
from fnmatch import fnmatchcase

from nodevet.remote.probe.files import Reading, SectionError, names, no_note, quote
from nodevet.remote.program import ToolError, find_program, output_of

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
    """{title: {name: value}} of a link; skips warnings before the JSON. Raises ValueError."""
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


def value_text(output: "dict[str, Any]", title: str, name: str) -> str:
    """A value of the output as text. Raises ValueError if it is missing or N/A."""
    section = output.get(title)
    text = section.get(name) if isinstance(section, dict) else None
    if not isinstance(text, (str, int, float)) or str(text).strip() in ("", "N/A"):
        raise ValueError("mlxlink does not say it")
    return str(text).strip()[:100]


def parse_ber(text: str) -> float:
    """A bit error rate; mlxlink prints 15E-255 for none.

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
        record.take(field, lambda: parse(value_text(output, title, name)))  # noqa: B023 - called at once
    return record


def link(program: str, device: str) -> "Reading":
    record = Reading(device=device)
    try:
        return quality(record, output_of([program, "-d", device, "-c", "--json"], SECONDS))
    except (ToolError, ValueError) as error:
        record.fail_all(FIELDS, str(error)[:200])
        return record


def find_tool() -> str:
    """The first installed program of PROGRAMS. Raises ToolError."""
    for name in PROGRAMS[:-1]:
        try:
            return find_program(name)
        except ToolError:
            pass
    try:
        return find_program(PROGRAMS[-1])
    except ToolError:
        raise ToolError("neither mlxlink nor mstlink is on this node")


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    patterns = request.get("asks", {}).get("mlxlink", ())
    if root != "/":
        raise SectionError("mlxlink is run on a running machine only")
    try:
        devices = [
            name
            for name in names(root, CLASS)
            if name.startswith("mlx") and any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
    except FileNotFoundError:
        return Reading(links=[], found=[])
    if len(devices) > MOST:
        raise SectionError("{} devices, more than {}".format(len(devices), MOST))
    program = find_tool() if devices else ""
    section = Reading(links=[], found=devices)
    for device in devices:
        note(device)
        section["links"].append(link(program, device))
    return section
