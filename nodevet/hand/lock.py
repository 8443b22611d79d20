"""One writer per node: flock(2) on a file, held by this process until its stdin ends.

The lock dies with the connection or the node, and leaves nothing that could be stale: what
the file says is only who to ask. A connection that is silent for long is taken for dead: the
controller sends a byte now and then, which is answered, so that it gives up before the lock
is let go.
"""

import errno
import fcntl
import json
import os
import select
import stat
import time

from nodevet.hand.main import Refused
from nodevet.probe.files import BOOT_ID, attempt, line, reason

SILENCE = 120  # seconds without a byte, after which the lock is let go
SAID = 4096  # bytes of what the holder wrote
TRIES = 20  # of reading what a holder is about to write
_held = []  # the open file: the lock is held for as long as this process lives


def folder():
    """Where the lock is: /run/nodevet for root, else a place of this user alone.

    A user who is not root locks out only controllers that log in as the same user.
    """
    if os.geteuid() == 0:
        return "/run/nodevet"
    place = os.environ.get("XDG_RUNTIME_DIR", "")
    if place.startswith("/") and os.path.isdir(place):
        return os.path.join(place, "nodevet")
    return "/tmp/nodevet-{}".format(os.geteuid())  # noqa: S108


def open_lock(place):
    """The open file of the lock, in a folder that nobody else can write to. Raises Refused."""
    try:
        os.mkdir(place, 0o700)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise Refused("the lock's folder {} cannot be made: {}".format(place, reason(error)))
    path = os.path.join(place, "lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        status = os.lstat(place)
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or status.st_mode & 0o022:
            raise Refused("{} is not a folder of this user alone".format(place))
        lock = os.open(path, flags, 0o600)
    except OSError as error:
        raise Refused("the lock {} cannot be opened: {}".format(path, reason(error)))
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        raise Refused("{} is not a regular file".format(path))
    return lock


def holder(lock):
    """What the one who holds the lock wrote about itself; it may be about to."""
    for _ in range(TRIES):
        try:
            said = json.loads(os.pread(lock, SAID, 0).decode("utf-8"))
            return {key: str(said[key])[:300] for key in ("who", "since", "boot_id")}
        except (ValueError, LookupError, TypeError):
            time.sleep(0.05)
    return {"who": "somebody who does not say", "since": "", "boot_id": ""}


def lock(request):
    """{held: true, path}, or {held: false, who, since, boot_id, path}. Raises Refused."""
    place = folder()
    file = open_lock(place)
    path = os.path.join(place, "lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise Refused("the lock {} cannot be taken: {}".format(path, reason(error)))
        return dict(holder(file), held=False, path=path)
    said = {
        "who": str(request.get("who", ""))[:300],
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "boot_id": attempt(line, "/", BOOT_ID)[0] or "",
    }
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(said).encode("ascii"), 0)
    _held.append(file)
    return {"held": True, "path": path}


def keep(source, target):
    """Answer each sign of life, until the controller ends the session or is silent for too long.

    Both are file descriptors.
    """
    while select.select([source], [], [], SILENCE)[0]:
        if not os.read(source, 4096):
            return
        os.write(target, b"\n")
