"""Who may decide what a path holds: only who runs nodevet and root, or other users as well."""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

MOST_LINKS = 40  # as Linux: path_resolution(7)
ACL = "system.posix_acl_access"  # acl(5)
NO_LOGIN = ("nologin", "false", "sync", "shutdown", "halt")  # shells that run nothing for a user


def distrust(path: Path) -> str:
    """Why other users may decide what `path` holds, or "" if only root and who runs nodevet may.

    Looks at the path itself, at every folder above it, and at every link on the way. Each must
    belong to root or to who runs nodevet, and nobody else may write it; in a sticky folder such
    as /tmp others cannot replace what is not theirs. What does not exist (yet) is judged by the
    folders above it. The answer names the one path that is at fault, its owner and its mode:

        /srv/repo (owner ann, mode 0777) can be written by everyone
    """
    try:
        for place, found in _visited(path):
            if why := _distrusted(place, found):
                return f"{place} (owner {owner(found.st_uid)}, mode {_mode(found)}) {why}"
    except OSError as error:
        return f"{error.filename or path} cannot be read: {error.strerror}"
    return ""


def _visited(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder, link and file that the kernel visits to open a path, in its order.

    Raises OSError; ends at the first name that does not exist.
    """
    place, links = Path("/"), 0
    yield place, place.lstat()
    left = list(reversed((Path.cwd() / path).parts[1:]))
    while left:
        name = left.pop()
        if name == "..":
            place = place.parent
            continue
        here = place / name
        try:
            found = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        yield here, found
        if not stat.S_ISLNK(found.st_mode):
            place = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = here.readlink()
        if target.is_absolute():
            place = Path("/")
        left += [part for part in reversed(target.parts) if part != target.anchor]


def _distrusted(path: Path, found: os.stat_result) -> str:
    if found.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if stat.S_ISLNK(found.st_mode) or _is_sticky(found):
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everyone"
    if found.st_mode & stat.S_IWGRP:
        if not alone(found.st_uid, found.st_gid):
            return f"can be written by its group, {_group(found.st_gid)}"
        if _has_acl(path):  # the group's bits are its mask then, and do not say for whom
            return "has an access control list by which others may write it"
    return ""


def _is_sticky(found: os.stat_result) -> bool:
    """Whether it is a folder as /tmp, in which nobody replaces what belongs to another user."""
    return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)


def _has_acl(path: Path) -> bool:
    """Whether a path has an access control list. Raises OSError."""
    try:
        return bool(os.getxattr(path, ACL, follow_symlinks=False))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"


def owner(user: int) -> str:
    """A user's name, or the number if it has none here, as in a container."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"


def _group(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return f"gid {group}"


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
    others = [
        each for each in pwd.getpwall() if each.pw_gid == group and each.pw_uid not in (0, user)
    ]
    if group == 0 or owner is None:  # of group 0 are system users, too, which run nothing
        return group in (0, os.getegid()) and not any(map(_logs_in, others))
    if group != owner.pw_gid or (found is not None and found.gr_name != owner.pw_name):
        return False
    return not others


def _logs_in(user: pwd.struct_passwd) -> bool:
    return user.pw_shell.rpartition("/")[2] not in NO_LOGIN


def shared_folder(path: Path) -> str:
    """The folder of a path if others may create files there, as in /tmp; else "". Raises OSError.

    Nobody replaces a file there, but anybody makes one that a program looks for beside it."""
    folder = path.resolve().parent
    found = folder.stat()
    writable = found.st_mode & stat.S_IWOTH or (
        found.st_mode & stat.S_IWGRP and not alone(found.st_uid, found.st_gid)
    )
    return f"{folder} (mode {_mode(found)})" if writable else ""
