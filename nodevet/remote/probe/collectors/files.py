"""The files that a baseline asks about: whether they are there, whose they are, and what it asks
of their text. Links are followed."""

import os
import stat

from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    path_under,
    read,
    reason,
    silent,
)
from nodevet.remote.probe.questions import KINDS as OF_TEXT
from nodevet.remote.probe.questions import matches, merged

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


def collect(root, request):
    note = request.get("note", silent)
    found = []
    for question in merged(request.get("asks", {}).get("files", ()), "path"):
        note(question["path"])
        found.append(file(root, question))
    return Reading(files=found)


def file(root, question):
    """What is so of one file."""
    path = question["path"]
    record = Reading(path=path)
    try:
        status = os.stat(path_under(root, path))
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
        record.take("sha256", regular, status, sha256, root, path)
    else:
        record.fail("sha256", NOT_ASKED)
    asked = any(question.get(kind) for kind in OF_TEXT)
    text, why = attempt(regular, status, read, root, path) if asked else (None, None)
    record["matches"] = matches(question, text, why)
    return record


def regular(status, function, *arguments):
    """What the function makes of a regular file; to open a device may be to do something, and a
    watchdog that is opened resets the machine. Raises what the function does, and ValueError."""
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    return function(*arguments)


def owner(root, uid):
    """A user's name: as this machine has it, or the tree. Raises OSError, LookupError."""
    if root != "/":
        return named(root, "/etc/passwd", uid)
    import pwd

    return pwd.getpwuid(uid).pw_name


def group(root, gid):
    """The same of a group."""
    if root != "/":
        return named(root, "/etc/group", gid)
    import grp

    return grp.getgrgid(gid).gr_name


def named(root, table, number):
    """The name of a number in passwd(5) or group(5). Raises OSError, LookupError."""
    for row in read(root, table).splitlines():
        fields = row.split(":")
        if len(fields) > 2 and attempt(integer, fields[2])[0] == number:
            return fields[0]
    raise LookupError("no name of {} in {}".format(number, table))


def sha256(root, path):
    """Of the whole file, in hex. Raises OSError, ValueError."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    # without O_NONBLOCK a FIFO would block for ever
    opened = os.open(path_under(root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("not a regular file")
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
