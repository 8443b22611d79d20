"""NVMe controllers: /sys/class/nvme; and, if a baseline asks for it, their health logs.

`nvme smart-log`, else `smartctl`, reads the health log with a command "get log page", which changes
nothing. It has a deadline, and is used only on a live controller.
"""

import re

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    SectionError,
    attempt,
    integer,
    line,
    names,
    no_note,
    numbered,
    parsed,
    quote,
)
from nodevet.remote.probe.smart import FIELDS, parse_log
from nodevet.remote.program import ToolError, find_program, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLASS = "/sys/class/nvme"
HEALTH = "health"  # what a baseline asks for
NOT_ASKED = "the probe was not asked for it"
CONTROLLERS = 256
SECONDS = 5  # for the log of one drive
OUTPUT = 1 << 20  # bytes
TEXTS = (
    ("model", "model"),
    ("serial", "serial"),
    ("firmware", "firmware_rev"),
    ("state", "state"),
    ("transport", "transport"),
    ("address", "address"),
)
HWMON = re.compile(r"hwmon[0-9]{1,6}\Z")
COMMANDS = (  # program, its words before and after the device, exit codes of a log that was read
    ("nvme", ("smart-log",), ("--output-format=json",), lambda code: code == 0),
    # bits 0 and 1: not understood, not opened; the others are about the drive
    ("smartctl", ("--json", "--info", "--health", "--attributes"), (), lambda code: not code & 3),
)


def controller(root: str, number: int) -> "Reading":
    folder = "{}/nvme{}/".format(CLASS, number)
    record = Reading(name="nvme{}".format(number))
    for field, file in TEXTS:
        record.take(field, line, root, folder + file)
    record.take("numa_node", parsed, root, folder + "numa_node", integer)
    return record


def temperature(root: str, name: str) -> int:
    """Degrees of hwmon's first, composite sensor. Raises OSError, ValueError."""
    for folder in ("{}/{}".format(CLASS, name), "{}/{}/device/hwmon".format(CLASS, name)):
        for entry in attempt(names, root, folder)[0] or ():
            if HWMON.match(entry):
                path = "{}/{}/temp1_input".format(folder, entry)
                return round(parsed(root, path, integer) / 1000)
    raise ValueError("the kernel has no hwmon sensor of it")


def health(name: str) -> "dict[str, Any]":
    """{field: number} of the drive's log, and `tool`. Raises ValueError with all reasons."""
    reasons = []
    for program, options, last_options, is_good in COMMANDS:
        try:
            path = find_program(program)
        except ToolError:
            continue
        try:
            code, text, stderr = run(
                (path,) + options + ("/dev/" + name,) + last_options, SECONDS, OUTPUT
            )
            if not is_good(code) and not text.lstrip().startswith("{"):
                raise ValueError("ended with {}: {}".format(code, quote(stderr or text.strip())))
            return dict(parse_log(text), tool=program)
        except (SectionError, ValueError) as error:
            reasons.append("{}: {}".format(program, error))
    raise ValueError("; ".join(reasons) or "neither nvme nor smartctl is on this node")


def take_health(record: "Reading", root: str, is_requested: bool) -> None:
    """Set `temperature_c` and `health`, if requested and possible."""
    why = "" if is_requested else NOT_ASKED
    if not why and record["state"] not in ("live", None):
        why = "the controller is not live: it is not asked"
    if why:
        record.fail_all(("temperature_c", "health"), why)
        return
    record.take("temperature_c", temperature, root, record["name"])
    if root != "/":
        record.fail("health", "drives are asked on a running machine only")
        return
    values, why = attempt(health, record["name"])
    if values is None:
        record.fail("health", why)
        return
    log = Reading(tool=values["tool"])
    for field, _, _ in FIELDS:
        log.put(field, values[field], "{} does not tell it".format(values["tool"]))
    record["health"] = log


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    is_requested = HEALTH in request.get("asks", {}).get("nvme", ())
    try:
        numbers = numbered(root, CLASS, "nvme", CONTROLLERS)
    except FileNotFoundError:
        raise Absent("{} does not exist: the kernel has no NVMe driver loaded".format(CLASS))
    controllers = []
    for number in numbers:
        record = controller(root, number)
        note(record["name"])
        take_health(record, root, is_requested)
        controllers.append(record)
    return Reading(controllers=controllers)
