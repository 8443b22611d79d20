"""The commands that a baseline asks for, and allows: each is run without a shell, within its time,
as a user who may nothing unless another is named.

What they print stays here, but for what is asked of it: see nodevet.remote.probe.questions, and
`json`, values in it. Of an output that is to equal a text its beginning is told, and of a command
that failed what it said of that.
"""

import json
import os
import time

from nodevet.remote.probe.files import Absent, Reading, reason, silent
from nodevet.remote.probe.questions import matches, merged
from nodevet.remote.program import ToolError, find, run_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence, TypeVar

    T = TypeVar("T")

NOBODY = "nobody"
OUTPUT = 1 << 20  # bytes
SHOWN = 1000  # characters of a text that is sent back
SPARE = 1.0  # seconds of the section that no command has
FIELDS = ("exit", "text", "complaint")


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """They take as long as they take."""
    return bool(request.get("asks", {}).get("commands"))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    asked = merged(request.get("asks", {}).get("commands", ()), "name")
    if asked and root != "/":
        raise Absent("commands are run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    found = []
    for question in asked:
        note(question["name"])
        found.append(command(question, end - time.monotonic()))
    return Reading(commands=found)


def command(question: "dict[str, Any]", left: float) -> "Reading":
    """What one command answers, which has at most so many seconds."""
    record = Reading(name=question["name"])
    try:
        user, who = user_of(question["user"])
        record["user"] = user
        if left <= 0:
            raise ToolError("the commands before it left no time for it")
        words = question["run"]
        path = words[0] if words[0].startswith("/") else find(words[0])
        seconds = min(question["deadline"], left)
        code, text, complaint = run_alone([path] + words[1:], seconds, OUTPUT, who)
    except (ToolError, OSError, LookupError, ValueError) as error:
        why = str(error) if isinstance(error, ToolError) else reason(error)
        record.setdefault("user", None)
        record.fail_all(FIELDS, why)
        record["matches"] = matches(question, None, why)
        record["values"] = values(question, None, why)
        return record
    record["exit"] = code if code >= 0 else 128 - code  # as a shell tells a signal
    record["complaint"] = complaint[:SHOWN] if code else ""
    record["text"] = text[:SHOWN] if question.get("equals") else ""
    record["matches"] = matches(question, text, None)
    record["values"] = values(question, text, None)
    return record


def user_of(name: "str | None") -> "tuple[str, tuple[int, int, Sequence[int]] | None]":
    """(whose name it runs under, (uid, gid, groups) if that is another one). Raises ToolError."""
    import pwd

    uid = os.geteuid()
    try:
        me = pwd.getpwuid(uid).pw_name
    except KeyError:
        me = str(uid)
    if uid != 0:
        if name not in ("", me):
            raise ToolError("only root can run it as {}, and this is {}".format(name, me))
        return me, None
    try:
        entry = pwd.getpwnam(name or NOBODY)
    except KeyError:
        raise ToolError("there is no user {}".format(name or NOBODY))
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    who = None if entry.pw_uid == 0 else (entry.pw_uid, entry.pw_gid, groups)
    return entry.pw_name, who


def values(question: "dict[str, Any]", text: "str | None", why: "Any") -> "list[Reading]":
    """The answers to `json`: a path each, of keys and numbers."""
    paths = question.get("json", ())
    document = None
    if paths and text is not None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            text, why = None, "the output is not JSON: {}".format(error)[:200]
    found = []
    for path in paths:
        answer = Reading(path=spelled(path))
        if text is None:
            answer.fail_all(("there", "value"), why)
        else:
            answer.update(followed(document, path))
        found.append(answer)
    return found


def spelled(path: "Sequence[str | int]") -> str:
    """
    >>> spelled(["gpus", 0, "speed"])
    'gpus[0].speed'
    """
    words = ("[{}]".format(step) if isinstance(step, int) else "." + step for step in path)
    return "".join(words).lstrip(".")


def followed(value: "Any", path: "Sequence[str | int]") -> "dict[str, Any]":
    """{there, value, errors} of what the path leads to."""
    answer = Reading(there=True)
    for step in path:
        fits = isinstance(value, dict if isinstance(step, str) else list)
        if not fits or (step not in value if isinstance(step, str) else step >= len(value)):
            answer["there"] = False
            answer.fail("value", "the output has no such value")
            return answer
        value = value[step]
    answer.take("value", scalar, value)
    return answer


def scalar(value: "T") -> "T":
    """A value that can be compared. Raises ValueError."""
    if value is None or isinstance(value, (dict, list)):
        raise ValueError("neither text nor a number nor true or false")
    if isinstance(value, str) and len(value) > SHOWN:
        raise ValueError("longer than {} characters".format(SHOWN))
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("half a character")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("beyond 64 bits")
    if isinstance(value, float) and value - value != 0.0:
        raise ValueError("not a finite number")
    return value
