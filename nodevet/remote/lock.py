"""One writer per node: flock(2) on a file, held by this process until its stdin ends.

The lock dies with the connection or the node, and leaves nothing that could be stale: what
the file says is only who to ask, and the token that each action of the holder shows
(nodevet.remote.fence). An action may outlive the connection that began it. It holds a second file
until it has ended: who takes the lock writes a token first, with which no action of an earlier
holder begins any more, and gets the lock only when none is left.

A connection that is silent for long is taken for dead: the controller sends a byte now and then,
which is answered, so that it gives up before the lock is let go.
"""

import errno
import fcntl
import json
import os
import select
import stat
import sys
import time

from nodevet.remote.probe.files import BOOT_ID, attempt, line, reason
from nodevet.remote.request import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SILENCE = 120  # seconds without a byte, after which the lock is let go
SAID = 4096  # bytes of what the holder wrote
PAUSE = 0.05  # seconds between two tries
TRIES = 20  # of taking the lock, which an action looks at for a moment, and of reading who has it
WAIT = 10  # seconds that an action of an earlier holder is waited for
UNKNOWN = {"who": "an unknown controller", "since": "", "boot_id": ""}
_held: "list[int]" = []  # the open file: the lock is held for as long as this process lives


def folder() -> str:
    """Where the lock is: /run/nodevet for root, else a place of this user alone.

    A user who is not root locks out only controllers that log in as the same user.
    """
    if os.geteuid() == 0:
        return "/run/nodevet"
    place = os.environ.get("XDG_RUNTIME_DIR", "")
    if place.startswith("/") and os.path.isdir(place):
        return os.path.join(place, "nodevet")
    return "/tmp/nodevet-{}".format(os.geteuid())  # noqa: S108


def open_file(place: str, name: str) -> int:
    """An open file in a folder that only this user can write to. Raises Refused."""
    try:
        os.mkdir(place, 0o700)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise Refused("the lock's folder {} cannot be created: {}".format(place, reason(error)))
    path = os.path.join(place, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        status = os.lstat(place)
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or status.st_mode & 0o022:
            raise Refused("{} is not a folder that only this user can write to".format(place))
        file = os.open(path, flags, 0o600)
    except OSError as error:
        raise Refused("the lock {} cannot be opened: {}".format(path, reason(error)))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refused("{} is not a regular file".format(path))
    return file


def taken(file: int, seconds: float) -> bool:
    """Whether the file could be locked within this time. Raises Refused."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise Refused("the lock cannot be taken: {}".format(reason(error)))
        else:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE)


def said(lock: int) -> "dict[str, str] | None":
    """What a holder wrote about itself; None if it did not, or is about to."""
    try:
        found = json.loads(os.pread(lock, SAID, 0).decode("utf-8"))
        return {key: str(found[key])[:300] for key in ("who", "since", "boot_id")}
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def say(lock: int, who: "dict[str, str]", token: str) -> None:
    """Write who holds the lock. Raises Refused."""
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(dict(who, token=token)).encode("ascii"), 0)
    except OSError as error:
        raise Refused("the lock cannot be written: {}".format(reason(error)))


def holder(lock: int) -> "dict[str, str]":
    """Who holds the lock; it may be about to write that."""
    for _ in range(TRIES):
        found = said(lock)
        if found:
            return found
        time.sleep(PAUSE)
    return UNKNOWN


def has_open(pid: int, wanted: "os.stat_result") -> bool:
    """Whether a process has a file open; one that cannot be looked at has not."""
    folder = "/proc/{}/fd".format(pid)
    try:
        for number in os.listdir(folder):
            if os.path.samestat(wanted, os.stat(os.path.join(folder, number))):
                return True
    except OSError:  # it ended, or is another user's
        pass
    return False


def running(file: int) -> str:
    """The processes that have a file open, but this one: `pid 12 (sh), pid 13 (sleep)`."""
    wanted, found = os.fstat(file), []
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    for pid in pids:
        if pid != os.getpid() and has_open(pid, wanted):
            name = attempt(line, "/", "/proc/{}/comm".format(pid))[0]
            found.append("pid {} ({})".format(pid, name or "?"))
    return ", ".join(found[:4] + ["..."] * (len(found) > 4))


def lock(request: "dict[str, Any]") -> "dict[str, object]":
    """{held: true, path, acting, python}: what the actions under it need.

    Else {held: false, who, since, boot_id, path}: who has it, or had it when an action was begun
    that did not end yet; then `running` names its processes. Raises Refused.
    """
    place = folder()
    path, token = os.path.join(place, "lock"), str(request["token"])
    file, acting = open_file(place, "lock"), open_file(place, "acting")
    got = False
    try:
        if not taken(file, TRIES * PAUSE):
            return dict(holder(file), held=False, path=path)
        before = said(file) or UNKNOWN
        say(file, before, token)
        if not taken(acting, min(WAIT, request["deadline"] / 4)):
            return dict(before, held=False, path=path, running=running(acting))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        boot_id = attempt(line, "/", BOOT_ID)[0] or ""
        who = {"who": str(request.get("who", ""))[:300], "since": since, "boot_id": boot_id}
        say(file, who, token)
        _held.append(file)
        got = True
    finally:
        os.close(acting)
        if not got:
            os.close(file)
    return {
        "held": True,
        "path": path,
        "acting": os.path.join(place, "acting"),
        "python": sys.executable,
    }


def keep(source: int, target: int) -> None:
    """Answer each sign of life, until the controller ends the session or is silent for too long.

    Both are file descriptors.
    """
    while select.select([source], [], [], SILENCE)[0]:
        if not os.read(source, 4096):
            return
        os.write(target, b"\n")
