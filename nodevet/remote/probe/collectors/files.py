"""The files that a baseline asks about: whether they are there, whose they are, and what it asks
of their text. Links are followed.

The text of a file that not everyone on this machine may read, its hash too, is asked about only if
every baseline that asks allows it (`private`): each answer gives away a part of the text.
"""

import os
import re
import stat
from functools import partial

from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    path_under,
    read,
    reason,
    silent,
    status_of,
)
from nodevet.remote.probe.questions import KINDS as OF_TEXT
from nodevet.remote.probe.questions import matches, merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    T = TypeVar("T")

LARGEST = 64 << 20  # bytes of a file of which the hash is asked
CHUNK = 1 << 20
KINDS = (
    ("file", stat.S_ISREG),
    ("directory", stat.S_ISDIR),
    ("character device", stat.S_ISCHR),
    ("block device", stat.S_ISBLK),
    ("fifo", stat.S_ISFIFO),
    ("socket", stat.S_ISSOCK),
)
OF_A_FILE = ("kind", "mode", "uid", "gid", "owner", "group", "sha256")
GONE = "there is no such file"
NOT_ASKED = "the baseline does not ask for it"
PRIVATE = (
    "not everyone on the node may read this file: rules ask about its text only if the baseline "
    "says allow_file_text: true"
)
PROCESS = re.compile(r"/proc/[0-9]+/")  # the kernel asks more there than the mode says


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    found = []
    asked = request.get("asks", {}).get("files", ())
    guarded = {question["path"] for question in asked if question.get("private") is not True}
    for question in merged(asked, "path"):
        note(question["path"])
        look = partial(refuse_private, root) if question["path"] in guarded else None
        found.append(file(root, question, look))
    return Reading(files=found)


def refuse_private(root: str, descriptor: int) -> None:
    """Raise ValueError unless everyone on this machine may read the open file: by its mode, and by
    those of the folders above it. Raises OSError."""
    root = os.path.realpath(root).rstrip("/")
    path = os.readlink("/proc/self/fd/{}".format(descriptor))
    if not os.fstat(descriptor).st_mode & stat.S_IROTH or PROCESS.match(path[len(root) :]):
        raise ValueError(PRIVATE)
    folder = os.path.dirname(path)
    while len(folder) > max(len(root), 1):  # not the root itself
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            raise ValueError(PRIVATE)
        folder = os.path.dirname(folder)


def file(root: str, question: "dict[str, Any]", look: "Callable[[int], None] | None") -> "Reading":
    """What is so of one file; `look` refuses to have its text read, or is None."""
    path = question["path"]
    record = Reading(path=path)
    try:
        status = status_of(root, path)
    except (FileNotFoundError, NotADirectoryError):
        record["exists"] = False
        record.fail_all(OF_A_FILE, GONE)
        record["matches"] = matches(question, None, GONE)
        return record
    except (OSError, ValueError) as error:
        record.fail_all(("exists",) + OF_A_FILE, reason(error))
        record["matches"] = matches(question, None, reason(error))
        return record
    record["exists"] = True
    record["kind"] = next((name for name, fits in KINDS if fits(status.st_mode)), "other")
    record["mode"] = "{:04o}".format(stat.S_IMODE(status.st_mode))
    record["uid"], record["gid"] = status.st_uid, status.st_gid
    record.take("owner", owner, root, status.st_uid)
    record.take("group", group, root, status.st_gid)
    if question.get("sha256"):
        record.take("sha256", regular, status, sha256, root, path, look)
    else:
        record.fail("sha256", NOT_ASKED)
    asked = any(question.get(kind) for kind in OF_TEXT)
    text, why = attempt(regular, status, read, root, path, look) if asked else (None, None)
    record["matches"] = matches(question, text, why)
    return record


def regular(status: "os.stat_result", function: "Callable[..., T]", *arguments: object) -> "T":
    """What the function makes of a regular file; to open a device may be to do something, and a
    watchdog that is opened resets the machine. Raises what the function does, and ValueError."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    return function(*arguments)


def owner(root: str, uid: int) -> str:
    """A user's name: as this machine has it, or the tree. Raises OSError, LookupError."""
    if root != "/":
        return named(root, "/etc/passwd", uid)
    import pwd

    return pwd.getpwuid(uid).pw_name


def group(root: str, gid: int) -> str:
    """The same of a group."""
    if root != "/":
        return named(root, "/etc/group", gid)
    import grp

    return grp.getgrgid(gid).gr_name


def named(root: str, table: str, number: int) -> str:
    """The name of a number in passwd(5) or group(5). Raises OSError, LookupError."""
    for row in read(root, table).splitlines():
        fields = row.split(":")
        if len(fields) > 2 and attempt(integer, fields[2])[0] == number:
            return fields[0]
    raise LookupError("no name of {} in {}".format(number, table))


def sha256(root: str, path: str, look: "Callable[[int], None] | None" = None) -> str:
    """Of the whole file, in hex. Raises OSError, ValueError, and what `look` raises."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    # without O_NONBLOCK a FIFO would block for ever
    opened = os.open(path_under(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("not a regular file")
        if look:
            look(opened)
        while True:
            chunk = os.read(opened, CHUNK)
            if not chunk:
                return digest.hexdigest()
            size += len(chunk)
            if size > LARGEST:
                raise ValueError("larger than {} MiB".format(LARGEST >> 20))
            digest.update(chunk)
    finally:
        os.close(opened)
