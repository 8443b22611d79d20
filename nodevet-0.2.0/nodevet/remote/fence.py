"""Runs before each action, in the action's shell: may the action begin under this lock?

Arguments: the lock's file and the holder's token. Descriptor 9 is the file next to the lock. All
processes of the shell inherit it, so it stays locked until the last of them ends. A new holder
writes its token first and then waits for this file (nodevet.remote.lock). This program locks the
file first and then reads the token, so one of the two always notices the other.
"""

import fcntl
import sys


def refusal(path: str, token: str) -> str:
    """Why the action may not begin; empty if it may. Raises OSError."""
    try:
        fcntl.flock(9, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another controller is taking the lock"
    with open(path) as lock:
        if token not in lock.read():
            return "another controller has taken the lock since"
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "the lock is no longer held"


sys.exit(refusal(*sys.argv[1:]) or 0)
