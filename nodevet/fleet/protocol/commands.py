"""The commands that run on a node, and what their exit means. Pure.

The node's login shell reads it first, be it bash, csh or fish: one line, one pair
of single quotes, and inside them no quote, backslash, newline or exclamation mark.
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
GRACE = 5  # seconds between what the probe is told, TERM and KILL

_PLAIN_PATH = re.compile(r"[\w./+@-]+")


class CommandError(ValueError):
    """A value from the inventory that cannot be put into the command."""


def command(*, python: str | None, sudo: bool, seconds: float) -> str:
    """The command line for one node.

    `python` is tried alone when given. `timeout` is used if it exists and knows
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
        f'exec {"sudo -n " if sudo else ""}$t $p -I -c "{BOOT}"'
    )
    return f"exec /bin/sh -c '{script}'"


def bounded(script: str, seconds: float) -> str:
    """A script of sh that timeout(1) ends, if there is one; one that a signal ends has an exit
    code all the same."""
    limit = f"timeout -k {GRACE} {math.ceil(seconds)}"
    tried = f't="{limit}"; timeout -k 1 9 true >/dev/null 2>&1 || t=;'
    return f"{tried} $t sh -c {shlex.quote(script)} ; exit $?"


@dataclass(frozen=True)
class Fence:
    """What an action needs to run under a lock: the files and the python of nodevet.remote.lock."""

    lock: str
    acting: str
    python: str
    token: str

    def around(self, script: str, *, mark: str) -> str:
        """A script of sh that runs under this lock only, and keeps it from others until its end.

        Else it ends with FENCED, the last line on stderr is `mark`, and nothing was begun.
        """
        words = (self.python, "-I", "-S", "-c", f"exec({fence()!r})", self.lock, self.token)
        acting = shlex.quote(self.acting)
        may = f"[ -e {acting} ] && exec 9<{acting} && {shlex.join(words)} </dev/null"
        return f"{{ {may}; }} || {{ echo {mark} >&2; exit {FENCED}; }}; {script}"


def explain(code: int, stderr: bytes, *, python: str | None, said: bytes | None = None) -> str:
    """Why a node gave no evidence, from the exit code of its command and what it complained.

    `said`: what it wrote to its stdout, if no program of ours did.
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
    if said is not None and code > 0 and not last:
        return no_shell(code, said)
    ended = "connection lost" if code < 0 else f"command on the node exited with {code}"
    return f"{ended}: {last}" if last else ended


def no_shell(code: int, said: bytes) -> str:
    """Why there is no evidence if the login shell ran nothing: nologin(8), false(1)."""
    words = last_line(said) or f"it exited with {code}"
    return (
        f"the user's login shell on the node ran no command: {words}; log in as a user who has a "
        "shell: USER@HOST, or `user` in the inventory"
    )


def timed_out(code: int) -> bool:
    """Whether timeout(1) ended the probe: 124, or 137 if it had to kill it."""
    return code in (124, 128 + 9)
