"""A file, or a symbolic link."""

import base64
import os
import re
import stat

from nodevet.remote.look import absent, absolute_path, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import LIMIT, path_under

DROP_IN = re.compile(r"/etc/systemd/system/([^/]+)\.d/[^/]*numa-binding\.conf\Z")


def look(root: str, path: str) -> "dict[str, object]":
    """{content in base64, mode, owner, group}, or {target} of a symbolic link."""
    directory, name = os.path.split(absolute_path(path))
    target = os.path.join(path_under(root, directory), name)
    try:
        if stat.S_ISLNK(os.lstat(target).st_mode):
            return present({"target": os.readlink(target)})
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return unknown("not a regular file", exists=True)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(LIMIT + 1)
    finally:
        os.close(descriptor)
    value: "dict[str, object]" = {
        "mode": stat.S_IMODE(status.st_mode),
        "owner": status.st_uid,
        "group": status.st_gid,
    }
    if len(content) > LIMIT:
        return unknown("larger than {} MiB".format(LIMIT >> 20), exists=True, value=value)
    value["content"] = base64.b64encode(content).decode("ascii")
    return present(value)


def patterns(root: str, name: str) -> "Patterns | None":
    """The other drop-ins of a unit that nodevet's drop-in binds; None for any other file."""
    match = DROP_IN.match(name)
    return Patterns(drop_ins=match.group(1)) if match else None
