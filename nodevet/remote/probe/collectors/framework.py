"""CUDA in PyTorch, by the interpreters that a baseline names.

Each runs isolated (-I), with a time limit, and as an unprivileged user if this is root and the
baseline names no user (`USER:/PATH`). It imports torch and lists the devices, without GPU memory.
"""

import json
import re
import time

from nodevet.remote.probe.collectors.commands import user_of
from nodevet.remote.probe.files import Absent, Reading, no_note, reason, text_lines
from nodevet.remote.program import ToolError, run_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
NAME = re.compile(r"(?:([a-z_][a-z0-9_.-]{0,31}):)?(/[A-Za-z0-9._/@+-]{1,200})\Z")
SECONDS = 120.0  # for one interpreter: torch on a network file system takes a minute
SPARE = 1.0  # seconds of the section that no interpreter gets
OUTPUT = 1 << 18  # bytes
LONGEST = 4000  # characters of a message
MARK = "nodevet:"
FIELDS = ("version", "cuda", "available", "devices")
CODE = """\
import json, sys
import torch
found = {
    "version": str(torch.__version__),
    "cuda": str(torch.version.cuda or ""),
    "available": bool(torch.cuda.is_available()),
    "devices": int(torch.cuda.device_count()),
}
sys.stdout.write("\\n%s" + json.dumps(found) + "\\n")
"""


def parse(text: str) -> "dict[str, Any]":
    """The interpreter's values, in torch's output. Raises ValueError."""
    rows = [row for row in text_lines(text) if row.startswith(MARK)]
    if not rows:
        raise ValueError("the interpreter did not say what it found")
    try:
        values = json.loads(rows[-1][len(MARK) :])
    except RecursionError:
        raise ValueError("nested too deeply")
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    kinds = {"version": str, "cuda": str, "available": bool, "devices": int}
    if not all(isinstance(values.get(key), kind) for key, kind in kinds.items()):
        raise ValueError("not what was asked for")
    return {
        "version": values["version"][:100],
        "cuda": values["cuda"][:100],
        "available": values["available"],
        "devices": min(max(values["devices"], -1), 1 << 20),
    }


def last_line(text: str) -> str:
    rows = [row.strip() for row in text_lines(text) if row.strip()]
    return rows[-1][:LONGEST] if rows else "no message"


def interpreter(name: str, seconds_left: float) -> "Reading":
    """The record of one interpreter, which may take at most `seconds_left`."""
    record = Reading(name=name)
    try:
        match = NAME.match(name)
        if match is None or ".." in match.group(2).split("/"):
            raise ValueError("not an absolute path of an interpreter")
        user, ids = user_of(match.group(1) or "")
        record["user"] = user
        if seconds_left <= 0:
            raise ToolError("the interpreters before it left no time for it")
        argv = [match.group(2), "-I", "-c", CODE % MARK]
        code, text, stderr = run_alone(argv, min(SECONDS, seconds_left), OUTPUT, ids)
        if code:
            record["failed"] = last_line(stderr)
            record.fail_all(FIELDS, "it ended with {}".format(code))
            return record
        record["failed"] = ""
        record.update(parse(text))
    except (ToolError, OSError, LookupError, ValueError) as error:
        why = str(error) if isinstance(error, ToolError) else reason(error)
        record.setdefault("user", "")
        record.fail_all(("failed",) + FIELDS, why)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    names = sorted(set(request.get("asks", {}).get("framework", ())))
    if names and root != "/":
        raise Absent("interpreters are run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    records = []
    for name in names:
        note(name)
        records.append(interpreter(name, end - time.monotonic()))
    return Reading(interpreters=records)
