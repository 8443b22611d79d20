"""The files that a baseline asks about: stat(2) after links, and answers about their text.

If not everyone on this machine may read a file, its text and hash are private: nodevet answers only
if every baseline that asks allows it (`private`), since each answer reveals a part of the text.
"""

import os
import re
import stat
from functools import partial

from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    no_note,
    open_regular,
    path_under,
    read,
    reason,
    status_of,
    text_lines,
)
from nodevet.remote.probe.questions import KINDS as OF_TEXT
from nodevet.remote.probe.questions import matches, merge_questions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

LARGEST = 64 << 20  # bytes of a file to hash
CHUNK = 1 << 20
KINDS = (
    ("file", stat.S_ISREG),
    ("directory", stat.S_ISDIR),
    ("character device", stat.S_ISCHR),
    ("block device", stat.S_ISBLK),
    ("fifo", stat.S_ISFIFO),
    ("socket", stat.S_ISSOCK),
)
FILE_FIELDS = ("kind", "mode", "uid", "gid", "owner", "group", "sha256")
GONE = "there is no such file"
NOT_ASKED = "the baseline does not ask for it"
PRIVATE = (
    "not everyone on the node may read this file: rules ask about its text only if the baseline "
    "says allow_file_text: true"
)
PROCESS = re.compile(r"/proc/[0-9]+/")  # the mode is not the kernel's only check there


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    records = []
    questions = request.get("asks", {}).get("files", ())
    guarded = {question["path"] for question in questions if question.get("private") is not True}
    for question in merge_questions(questions, "path"):
        note(question["path"])
        check = partial(refuse_private, root) if question["path"] in guarded else None
        records.append(file(root, question, check))
    return Reading(files=records)


def refuse_private(root: str, descriptor: int) -> None:
    """Raise ValueError unless everyone may read the open file, by its mode and the modes of its
    folders; or OSError."""
    root = os.path.realpath(root).rstrip("/")
    path = os.readlink("/proc/self/fd/{}".format(descriptor))
    if not os.fstat(descriptor).st_mode & stat.S_IROTH or PROCESS.match(path[len(root) :]):
        raise ValueError(PRIVATE)
    folder = os.path.dirname(path)
    while len(folder) > max(len(root), 1):  # not the root itself
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            raise ValueError(PRIVATE)
        folder = os.path.dirname(folder)


def file(root: str, question: "dict[str, Any]", check: "Callable[[int], None] | None") -> "Reading":
    """The record of a file; `check`, if any, raises ValueError for a private text."""
    path = question["path"]
    record = Reading(path=path)
    try:
        status = status_of(root, path)
    except (FileNotFoundError, NotADirectoryError):
        record["exists"] = False
        record.fail_all(FILE_FIELDS, GONE)
        record["matches"] = matches(question, None, GONE)
        return record
    except (OSError, ValueError) as error:
        record.fail_all(("exists",) + FILE_FIELDS, reason(error))
        record["matches"] = matches(question, None, reason(error))
        return record
    record["exists"] = True
    record["kind"] = next((name for name, is_kind in KINDS if is_kind(status.st_mode)), "other")
    record["mode"] = "{:04o}".format(stat.S_IMODE(status.st_mode))
    record["uid"], record["gid"] = status.st_uid, status.st_gid
    record.take("owner", owner, root, status.st_uid)
    record.take("group", group, root, status.st_gid)
    if question.get("sha256"):
        record.take("sha256", sha256, root, path, check)
    else:
        record.fail("sha256", NOT_ASKED)
    is_text_asked = any(question.get(kind) for kind in OF_TEXT)
    text, why = attempt(read, root, path, check) if is_text_asked else (None, None)
    record["matches"] = matches(question, text, why)
    return record


def owner(root: str, uid: int) -> str:
    """A user's name, on this machine or in the tree. Raises OSError, LookupError."""
    if root != "/":
        return name_of(root, "/etc/passwd", uid)
    import pwd

    return pwd.getpwuid(uid).pw_name


def group(root: str, gid: int) -> str:
    """A group's name: see `owner`."""
    if root != "/":
        return name_of(root, "/etc/group", gid)
    import grp

    return grp.getgrgid(gid).gr_name


def name_of(root: str, table: str, number: int) -> str:
    """The name of an id in passwd(5) or group(5). Raises OSError, LookupError."""
    for row in text_lines(read(root, table)):
        fields = row.split(":")
        if len(fields) > 2 and attempt(integer, fields[2])[0] == number:
            return fields[0]
    raise LookupError("no name of {} in {}".format(number, table))


def sha256(root: str, path: str, check: "Callable[[int], None] | None" = None) -> str:
    """SHA-256 of a file in hex. Raises OSError, ValueError, and what `check` raises."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    descriptor = open_regular(path_under(root, path))
    try:
        if check:
            check(descriptor)
        while True:
            chunk = os.read(descriptor, CHUNK)
            if not chunk:
                return digest.hexdigest()
            size += len(chunk)
            if size > LARGEST:
                raise ValueError("larger than {} MiB".format(LARGEST >> 20))
            digest.update(chunk)
    finally:
        os.close(descriptor)
