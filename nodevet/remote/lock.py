"""One writer per node: flock(2) on a file, held by this process until its stdin ends.

The lock dies with the connection or the node, so it cannot be stale. The file only names the
holder, and the token that each action of the holder shows (nodevet.remote.fence). An action may
outlive its connection; it locks a second file until it ends. A new holder writes its token first,
which stops further actions of an earlier holder, and gets the lock when the last of them has ended.

The controller sends a byte now and then, and gets one back. After a long silence this process
releases the lock; the controller gives up before that.
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

SILENCE = 120  # seconds without a byte before the lock is released
HOLDER_LIMIT = 4096  # bytes
PAUSE = 0.05  # seconds between two tries
TRIES = 20  # to take the lock, which an action locks for a moment, and to read its holder
WAIT = 10  # seconds for an earlier holder's actions to end
UNKNOWN = {"who": "an unknown controller", "since": "", "boot_id": ""}
_held: "list[int]" = []  # the open file keeps the lock for the life of this process


def lock_folder() -> str:
    """The lock's folder: /run/nodevet for root, else a folder of this user.

    A lock of a user other than root only stops controllers that log in as that user.
    """
    if os.geteuid() == 0:
        return "/run/nodevet"
    runtime_folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime_folder.startswith("/") and os.path.isdir(runtime_folder):
        return os.path.join(runtime_folder, "nodevet")
    return "/tmp/nodevet-{}".format(os.geteuid())  # noqa: S108


def open_file(folder: str, name: str) -> int:
    """Open a file in a folder that only this user can write to. Raises Refused."""
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise Refused(
                "the lock's folder {} cannot be created: {}".format(folder, reason(error))
            )
    path = os.path.join(folder, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        status = os.lstat(folder)
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or status.st_mode & 0o022:
            raise Refused("{} is not a folder that only this user can write to".format(folder))
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise Refused("the lock {} cannot be opened: {}".format(path, reason(error)))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused("{} is not a regular file".format(path))
    return descriptor


def try_lock(file: int, seconds: float) -> bool:
    """Lock a file within `seconds`; False if another process holds it. Raises Refused."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise Refused("the lock cannot be taken: {}".format(reason(error)))
        else:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE)


def read_holder(lock: int) -> "dict[str, str] | None":
    """What the holder wrote about itself; None if it has not written it yet."""
    try:
        holder = json.loads(os.pread(lock, HOLDER_LIMIT, 0).decode("utf-8"))
        return {key: str(holder[key])[:300] for key in ("who", "since", "boot_id")}
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def write_holder(lock: int, who: "dict[str, str]", token: str) -> None:
    """Write who holds the lock. Raises Refused."""
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(dict(who, token=token)).encode("ascii"), 0)
    except OSError as error:
        raise Refused("the lock cannot be written: {}".format(reason(error)))


def current_holder(lock: int) -> "dict[str, str]":
    """Who holds the lock; waits for the holder to write it."""
    for _ in range(TRIES):
        holder = read_holder(lock)
        if holder:
            return holder
        time.sleep(PAUSE)
    return UNKNOWN


def has_open(pid: int, path: str, status: "os.stat_result") -> bool:
    """Whether a process has a file open; False if its descriptors cannot be read. It does not stat
    files of other paths: they may be on a file system that hangs."""
    folder = "/proc/{}/fd".format(pid)
    try:
        for number in os.listdir(folder):
            link = os.path.join(folder, number)
            if os.readlink(link) == path and os.path.samestat(status, os.stat(link)):
                return True
    except OSError:  # it ended, or is another user's
        pass
    return False


def processes_text(file: int) -> str:
    """The other processes that have a file open: `pid 12 (sh), pid 13 (sleep)`."""
    path, status, processes = os.readlink("/proc/self/fd/{}".format(file)), os.fstat(file), []
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    for pid in pids:
        if pid != os.getpid() and has_open(pid, path, status):
            name = attempt(line, "/", "/proc/{}/comm".format(pid))[0]
            processes.append("pid {} ({})".format(pid, name or "?"))
    return ", ".join(processes[:4] + ["..."] * (len(processes) > 4))


def lock(request: "dict[str, Any]") -> "dict[str, object]":
    """{held: true, path, acting, python}: what the holder's actions need.

    Else {held: false, who, since, boot_id, path} of the holder. If an earlier holder's action has
    not ended, of that holder, and `running` names the action's processes. Raises Refused.
    """
    folder = lock_folder()
    path, token = os.path.join(folder, "lock"), str(request["token"])
    lock_file, acting = open_file(folder, "lock"), open_file(folder, "acting")
    is_held = False
    try:
        if not try_lock(lock_file, TRIES * PAUSE):
            return dict(current_holder(lock_file), held=False, path=path)
        previous = read_holder(lock_file) or UNKNOWN
        write_holder(lock_file, previous, token)
        if not try_lock(acting, min(WAIT, request["deadline"] / 4)):
            return dict(previous, held=False, path=path, running=processes_text(acting))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        boot_id = attempt(line, "/", BOOT_ID)[0] or ""
        who = {"who": str(request.get("who", ""))[:300], "since": since, "boot_id": boot_id}
        write_holder(lock_file, who, token)
        _held.append(lock_file)
        is_held = True
    finally:
        os.close(acting)
        if not is_held:
            os.close(lock_file)
    return {
        "held": True,
        "path": path,
        "acting": os.path.join(folder, "acting"),
        "python": sys.executable,
    }


def keep(source: int, target: int) -> None:
    """Answer each byte on descriptor `source`, until it is closed or silent for SILENCE."""
    while select.select([source], [], [], SILENCE)[0]:
        if not os.read(source, 4096):
            return
        os.write(target, b"\n")
