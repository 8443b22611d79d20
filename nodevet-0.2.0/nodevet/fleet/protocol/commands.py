"""The commands that run on a node, and the meaning of their exit codes. Pure.

The node's login shell reads a command first, be it bash, csh or fish: one line, one pair of single
quotes, and inside them no quote, backslash, newline or exclamation mark.
"""

import math
import re
import shlex
from dataclasses import dataclass

from nodevet.base.printable import last_line
from nodevet.fleet.protocol.payload import BOOT, TOO_OLD, fence

FENCED = 96
NO_PYTHON = 97
PYTHONS = ("python3", "/usr/bin/python3", "/usr/libexec/platform-python")
GRACE = 5  # seconds between the probe's own limit, TERM and KILL
LOCK_BEAT = 15  # seconds between two signs of life to the process that holds a node's lock
LOCKING = 60  # seconds that it may take to get the lock
MARGIN = 10  # seconds by which an inner time limit is shorter than the outer one
OUTPUT = 1 << 14  # characters of a command's output

_PLAIN_PATH = re.compile(r"[\w./+@-]+")


class CommandError(ValueError):
    """A value from the inventory that cannot be part of a command."""


def command(*, python: str | None, sudo: bool, seconds: float) -> str:
    """The command line for one node.

    `python`: try only this one; None: try PYTHONS. The command uses timeout(1) if it exists and has
    -k. Raises CommandError for a python that is not a plain path or name.
    """
    if python is not None and not _PLAIN_PATH.fullmatch(python):
        raise CommandError(f"python is {python!r}; it must be a path or a name without spaces")
    pythons = " ".join((python,) if python else PYTHONS)
    limit = f"timeout -k {GRACE} {math.ceil(seconds) + GRACE}"
    script = (
        f"for p in {pythons}; do command -v $p >/dev/null 2>&1 && break; p=; done; "
        f'[ -n "$p" ] || exit {NO_PYTHON}; '
        f't="{limit}"; timeout -k 1 9 true >/dev/null 2>&1 || t=; '
        f'exec {"sudo -n " if sudo else ""}$t $p -I -S -c "{BOOT}"'
    )
    return f"exec /bin/sh -c '{script}'"


def with_timeout(script: str, seconds: float) -> str:
    """A script of sh with a time limit, if timeout(1) exists. If a signal ends it, it still has an
    exit code."""
    limit = f"timeout -k {GRACE} {math.ceil(seconds)}"
    choose_limit = f't="{limit}"; timeout -k 1 9 true >/dev/null 2>&1 || t=;'
    return f"{choose_limit} $t sh -c {shlex.quote(script)} ; exit $?"


def inner_limit(seconds: float) -> float:
    """The time limit of a part, so that it ends before the whole."""
    return max(seconds / 2, seconds - MARGIN)


@dataclass(frozen=True)
class Fence:
    """A lock as actions need it: the files and the python of nodevet.remote.lock."""

    lock: str
    acting: str
    python: str
    token: str

    def around(self, script: str, *, mark: str) -> str:
        """A script of sh that runs only under this lock, and holds the lock until its end.

        Without the lock it ends with FENCED at once, and the last line on stderr is `mark`.
        """
        words = (self.python, "-I", "-S", "-c", f"exec({fence()!r})", self.lock, self.token)
        acting = shlex.quote(self.acting)
        holds_lock = f"[ -e {acting} ] && exec 9<{acting} && {shlex.join(words)} </dev/null"
        return f"{{ {holds_lock}; }} || {{ echo {mark} >&2; exit {FENCED}; }}; {script}"


def explain(code: int, stderr: bytes, *, python: str | None, output: bytes | None = None) -> str:
    """Why a node gave no evidence, by the exit code and stderr of its command.

    `output`: its stdout, if no program of ours wrote it.
    """
    last = last_line(stderr)
    if code == NO_PYTHON:
        return f"{python} not found on the node" if python else "no python3 on the node"
    if code == TOO_OLD:
        return last or "the node's Python is older than 3.6"
    if b"Unknown option: -I" in stderr:
        return f"{python or 'python3'} on the node is not Python 3.6 or newer"
    if last.startswith("sudo:"):
        return f"{last} (a NOPASSWD rule is needed)" if "password" in last else last
    if output is not None and code > 0 and not last:
        words = last_line(output) or f"it exited with {code}"
        return (  # nologin(8), false(1)
            f"the user's login shell on the node ran no command: {words}; log in as a user who has "
            "a shell: USER@HOST, or `user` in the inventory"
        )
    ending = "connection lost" if code < 0 else f"command on the node exited with {code}"
    return f"{ending}: {last}" if last else ending


def timed_out(code: int) -> bool:
    """Whether timeout(1) ended the probe: 124, or 137 if it had to kill it."""
    return code in (124, 128 + 9)
