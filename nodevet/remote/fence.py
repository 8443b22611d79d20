"""Runs before each action, in the action's shell: whether it may begin under this lock.

Arguments: the lock's file and the holder's token. Descriptor 9 is the file next to the lock; all
that the shell starts inherits it, so what is locked here is locked until the last of it ends.
Whoever takes the lock writes a token of their own first and waits for this file then
(nodevet.remote.lock); here it is the other way round, so that one of the two sees the other.
"""

import fcntl
import sys


def refusal(path: str, token: str) -> str:
    """Why nothing may begin; empty if it may. Raises OSError."""
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
