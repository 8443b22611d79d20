"""Who may decide what a path holds: only root and nodevet's own user, or others as well."""

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


def distrust(path: Path, *, must_exist: bool = False) -> str:
    """Why other users may decide what `path` holds, or "" if only root and nodevet's user may.

    Looks at the path itself, at every folder above it, and at every link on the way. Each must
    belong to root or to nodevet's user, and nobody else may write it; in a sticky folder such as
    /tmp others cannot replace foreign files. A path that does not exist (yet) is judged by the
    folders above it. With `must_exist` it is at fault: what is read afterwards is what was judged
    here, because nobody else can replace it, but in a sticky folder anybody can create it. The
    answer names the one path that is at fault, its owner and its mode:

        /srv/repo (owner ann, mode 0777) can be written by everyone
    """
    try:
        for place, status in _visited(path, must_exist=must_exist):
            if why := _fault(place, status):
                return f"{place} (owner {owner(status.st_uid)}, mode {_mode(status)}) {why}"
    except OSError as error:
        return f"{error.filename or path} cannot be read: {error.strerror}"
    return ""


def _visited(path: Path, *, must_exist: bool) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder, link and file that the kernel visits to open a path, in that order.

    Raises OSError, also for a name that does not exist if it must; else ends there.
    """
    place, links = Path("/"), 0
    yield place, place.lstat()
    parts = list(reversed((Path.cwd() / path).parts[1:]))
    while parts:
        name = parts.pop()
        if name == "..":
            place = place.parent
            continue
        here = place / name
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            if must_exist:
                raise
            return
        yield here, status
        if not stat.S_ISLNK(status.st_mode):
            place = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = here.readlink()
        if target.is_absolute():
            place = Path("/")
        parts += [part for part in reversed(target.parts) if part != target.anchor]


def _fault(path: Path, status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if stat.S_ISLNK(status.st_mode) or _is_sticky(status):
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everyone"
    if status.st_mode & stat.S_IWGRP:
        if not is_private_group(status.st_uid, status.st_gid):
            return f"can be written by its group, {_group(status.st_gid)}"
        if _has_acl(path):  # the group's bits are its mask then, and do not say for whom
            return "has an access control list that lets others write it"
    return ""


def _is_sticky(status: os.stat_result) -> bool:
    """Whether it is a folder like /tmp, in which nobody replaces another user's files."""
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)


def _has_acl(path: Path) -> bool:
    """Whether a path has an access control list. Raises OSError."""
    try:
        return bool(os.getxattr(path, ACL, follow_symlinks=False))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def owner(user: int) -> str:
    """A user's name, or `uid N` if it has none here, as in a container."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"


def _group(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return f"gid {group}"


def is_private_group(user: int, group: int) -> bool:
    """Whether only this user and root are in a group, as a umask of 002 expects."""
    try:
        account: pwd.struct_passwd | None = pwd.getpwuid(user)
    except KeyError:  # as in a container that runs as a number
        account = None
    try:
        entry: grp.struct_group | None = grp.getgrgid(group)
    except KeyError:
        entry = None
    if entry is not None and set(entry.gr_mem) - {"root", account.pw_name if account else ""}:
        return False
    members = [
        member
        for member in pwd.getpwall()
        if member.pw_gid == group and member.pw_uid not in (0, user)
    ]
    if group == 0 or account is None:  # system users are in group 0, too, and run nothing
        return group in (0, os.getegid()) and not any(map(_logs_in, members))
    if group != account.pw_gid or (entry is not None and entry.gr_name != account.pw_name):
        return False
    return not members


def _logs_in(user: pwd.struct_passwd) -> bool:
    return user.pw_shell.rpartition("/")[2] not in NO_LOGIN


def shared_folder(path: Path) -> str:
    """The folder of a path if others may create files there, as in /tmp; else "". Raises OSError.

    Nobody can replace a file there, but anybody can create one that a program looks for."""
    folder = path.resolve().parent
    status = folder.stat()
    writable = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not is_private_group(status.st_uid, status.st_gid)
    )
    return f"{folder} (mode {_mode(status)})" if writable else ""
