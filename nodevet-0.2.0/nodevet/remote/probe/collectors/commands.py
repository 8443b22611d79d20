"""The commands that a baseline asks for and allows: run without a shell, with a time limit, as an
unprivileged user unless the baseline names another.

The output stays on the node, except for answers (nodevet.remote.probe.questions), values of `json`,
its beginning if it must equal a text, and the error message of a failed command.
"""

import json
import os
import time

from nodevet.remote.probe.files import Absent, Reading, no_note, reason
from nodevet.remote.probe.questions import matches, merge_questions
from nodevet.remote.program import ToolError, find_program, run_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence, TypeVar

    T = TypeVar("T")

NOBODY = "nobody"
OUTPUT = 1 << 20  # bytes
LONGEST = 1000  # characters of a text in the answer
SPARE = 1.0  # seconds of the section that no command gets
FIELDS = ("exit", "text", "complaint")


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Commands may be slow."""
    return bool(request.get("asks", {}).get("commands"))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    questions = merge_questions(request.get("asks", {}).get("commands", ()), "name")
    if questions and root != "/":
        raise Absent("commands are run on a running machine only")
    end = request.get("end", time.monotonic() + request.get("deadline", 30.0)) - SPARE
    records = []
    for question in questions:
        note(question["name"])
        records.append(command(question, end - time.monotonic()))
    return Reading(commands=records)


def command(question: "dict[str, Any]", seconds_left: float) -> "Reading":
    """The record of one command, which may take at most `seconds_left`."""
    record = Reading(name=question["name"])
    try:
        user, ids = user_of(question["user"])
        record["user"] = user
        if seconds_left <= 0:
            raise ToolError("the commands before it left no time for it")
        argv = question["run"]
        path = argv[0] if argv[0].startswith("/") else find_program(argv[0])
        seconds = min(question["deadline"], seconds_left)
        code, text, stderr = run_alone([path] + argv[1:], seconds, OUTPUT, ids)
    except (ToolError, OSError, LookupError, ValueError) as error:
        why = str(error) if isinstance(error, ToolError) else reason(error)
        record.setdefault("user", None)
        record.fail_all(FIELDS, why)
        record["matches"] = matches(question, None, why)
        record["values"] = values(question, None, why)
        return record
    record["exit"] = code if code >= 0 else 128 - code  # a shell's code for a signal
    record["complaint"] = stderr[:LONGEST] if code else ""
    record["text"] = text[:LONGEST] if question.get("equals") else ""
    record["matches"] = matches(question, text, None)
    record["values"] = values(question, text, None)
    return record


def user_of(name: "str | None") -> "tuple[str, tuple[int, int, Sequence[int]] | None]":
    """(user, (uid, gid, groups) if not this process's). Raises ToolError."""
    import pwd

    uid = os.geteuid()
    try:
        own_name = pwd.getpwuid(uid).pw_name
    except KeyError:
        own_name = str(uid)
    if uid != 0:
        if name not in ("", own_name):
            raise ToolError("only root can run it as {}, and this is {}".format(name, own_name))
        return own_name, None
    try:
        entry = pwd.getpwnam(name or NOBODY)
    except KeyError:
        raise ToolError("there is no user {}".format(name or NOBODY))
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    ids = None if entry.pw_uid == 0 else (entry.pw_uid, entry.pw_gid, groups)
    return entry.pw_name, ids


def values(question: "dict[str, Any]", text: "str | None", why: "Any") -> "list[Reading]":
    """The values at the paths of `json`."""
    paths = question.get("json", ())
    document = None
    if paths and text is not None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            text, why = None, "the output is not JSON: {}".format(error)[:200]
    answers = []
    for path in paths:
        answer = Reading(path=path_text(path))
        if text is None:
            answer.fail_all(("there", "value"), why)
        else:
            answer.update(value_at(document, path))
        answers.append(answer)
    return answers


def path_text(path: "Sequence[str | int]") -> str:
    """
    >>> path_text(["gpus", 0, "speed"])
    'gpus[0].speed'
    """
    words = ("[{}]".format(step) if isinstance(step, int) else "." + step for step in path)
    return "".join(words).lstrip(".")


def value_at(value: "Any", path: "Sequence[str | int]") -> "dict[str, Any]":
    """{there, value, errors} at a path."""
    answer = Reading(there=True)
    for step in path:
        is_container = isinstance(value, dict if isinstance(step, str) else list)
        if not is_container or (step not in value if isinstance(step, str) else step >= len(value)):
            answer["there"] = False
            answer.fail("value", "the output has no such value")
            return answer
        value = value[step]
    answer.take("value", scalar, value)
    return answer


def scalar(value: "T") -> "T":
    """A value that baselines can compare. Raises ValueError."""
    if value is None or isinstance(value, (dict, list)):
        raise ValueError("neither text nor a number nor true or false")
    if isinstance(value, str) and len(value) > LONGEST:
        raise ValueError("longer than {} characters".format(LONGEST))
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("half a character")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("beyond 64 bits")
    if isinstance(value, float) and value - value != 0.0:
        raise ValueError("not a finite number")
    return value
