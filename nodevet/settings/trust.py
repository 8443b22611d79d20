"""Who else may write nodevet.toml: it names commands, and what it names is run."""

import grp
import os
import pwd
import stat
from pathlib import Path


def distrust(file: Path) -> str:
    """Why a file is not to be trusted: it or its folder belongs to another user than who runs
    nodevet and root, or others may write it; empty if all is well."""
    for path in (file, file.parent):
        who = "it" if path == file else "its folder"
        try:
            found = path.stat()
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if found.st_uid not in (0, os.geteuid()):
            return f"{who} belongs to another user"
        if path != file and found.st_mode & stat.S_ISVTX:
            continue  # as /tmp: nobody may put another file in its place
        if found.st_mode & stat.S_IWOTH:
            return f"{who} can be written by everyone"
        if found.st_mode & stat.S_IWGRP and not alone(found.st_uid, found.st_gid):
            return f"{who} can be written by its group"
    return ""


def alone(user: int, group: int) -> bool:
    """Whether nobody but this user and root is in a group: what a umask of 002 is made for."""
    try:
        owner: pwd.struct_passwd | None = pwd.getpwuid(user)
    except KeyError:  # as in a container that was given a number
        owner = None
    try:
        found: grp.struct_group | None = grp.getgrgid(group)
    except KeyError:
        found = None
    if found is not None and set(found.gr_mem) - {"root", owner.pw_name if owner else ""}:
        return False
    if group == 0 or owner is None:
        return group in (0, os.getegid())
    return group == owner.pw_gid and (found is None or found.gr_name == owner.pw_name)
