"""What PyTorch of the interpreters that a baseline names says of CUDA.

The interpreter is run isolated (-I), with a deadline, as a user who may nothing if this is root and
none is named, `USER:/PATH`. It imports torch and asks for the devices; no memory of a GPU is used.
"""

import json
import re
import time

from nodevet.remote.probe.collectors.commands import user_of
from nodevet.remote.probe.files import Absent, Reading, reason, silent
from nodevet.remote.program import ToolError, run_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
NAME = re.compile(r"(?:([a-z_][a-z0-9_.-]{0,31}):)?(/[A-Za-z0-9._/@+-]{1,200})\Z")
SECONDS = 120.0  # for one interpreter: torch on a network file system takes a minute
SPARE = 1.0  # seconds of the section that no interpreter has
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
    """What the interpreter found, from among what torch prints. Raises ValueError."""
    rows = [row for row in text.splitlines() if row.startswith(MARK)]
    if not rows:
        raise ValueError("the interpreter did not say what it found")
    try:
        found = json.loads(rows[-1][len(MARK) :])
    except RecursionError:
        raise ValueError("nested too deeply")
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    kinds = {"version": str, "cuda": str, "available": bool, "devices": int}
    if not all(isinstance(found.get(key), kind) for key, kind in kinds.items()):
        raise ValueError("not what was asked for")
    return {
        "version": found["version"][:100],
        "cuda": found["cuda"][:100],
        "available": found["available"],
        "devices": min(max(found["devices"], -1), 1 << 20),
    }


def last_line(text: str) -> str:
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return rows[-1][:LONGEST] if rows else "no message"


def interpreter(name: str, left: float) -> "Reading":
    """What one of them says, which has at most so many seconds."""
    record = Reading(name=name)
    try:
        match = NAME.match(name)
        if match is None or ".." in match.group(2).split("/"):
            raise ValueError("not an absolute path of an interpreter")
        user, who = user_of(match.group(1) or "")
        record["user"] = user
        if left <= 0:
            raise ToolError("the interpreters before it left no time for it")
        words = [match.group(2), "-I", "-c", CODE % MARK]
        code, text, complaint = run_alone(words, min(SECONDS, left), OUTPUT, who)
        if code:
            record["failed"] = last_line(complaint)
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
    note = request.get("note", silent)
    asked = sorted(set(request.get("asks", {}).get("framework", ())))
    if asked and root != "/":
        raise Absent("interpreters are run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    found = []
    for name in asked:
        note(name)
        found.append(interpreter(name, end - time.monotonic()))
    return Reading(interpreters=found)
