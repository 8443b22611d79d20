"""The site's drain hook, for one node.

nodevet calls it with the host as its last argument. If the first line that it prints is
`nodevet-hook: undrain reboot`, or has only one of these words, nodevet also calls it to give the
host back or to reboot it. If it does not give the host back because others hold it, it prints
`nodevet-hook: unchanged WHO`, and the result shows WHO. NODEVET_HOOK says which call it is;
NODEVET_PLAN and NODEVET_CHECKS name the plan and its checks, NODEVET_RUN the run of the plan, which
resumes and rollbacks continue. NODEVET_LOCKED is `no` if the run does not hold the node's lock,
because the node does not answer and is to be switched off by its BMC.
"""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief

TOLD = 300  # characters of what a hook said
OFFER = b"nodevet-hook:"
DRAIN, UNDRAIN, REBOOT = "drain", "undrain", "reboot"
OFFERS = frozenset({UNDRAIN, REBOOT})
UNCHANGED = OFFER + b" unchanged "


class DrainHook:
    """Of one node in one run. `offers`: what else the hook can do; None until it was called."""

    def __init__(
        self, command: str, host: str, seconds: float, plan: str = "", run: str = ""
    ) -> None:
        self._command = command
        self._host = host
        self._seconds = seconds
        self._plan = plan
        self._of_run = run
        self.checks: Sequence[str] = ()  # that the plan's fixes of this node answer
        self.offers: tuple[str, ...] | None = None
        self.given_back = False
        self._locked = "yes"
        self._unchanged = ""  # who holds the node

    def drain(self, *, is_locked: bool = True) -> str:
        """Why the node is not drained; empty if it is. `is_locked`: whether this run holds the
        node's lock."""
        self._locked = "yes" if is_locked else "no"
        self.offers = self.offers or ()
        why = self._call(DRAIN)
        return f"not drained: {why}" if why else ""

    def reboot(self) -> str:
        """Why the hook did not order the reboot; empty if it did."""
        return self._call(REBOOT)

    def undrain(self) -> str:
        """Why the node is not given back, or who else holds it; empty if it is given back, or if
        the hook cannot do that."""
        if UNDRAIN not in (self.offers or ()):
            return ""
        if why := self._call(UNDRAIN):
            return f"stays drained: {why}"
        self.offers, self.given_back = None, True
        return self._unchanged

    def _call(self, what: str) -> str:
        """Run the hook without a shell. Returns why it failed; empty if it did not."""
        try:
            with tempfile.TemporaryFile() as output:
                return self._run_hook(what, output)
        except OSError as error:  # of the temporary file
            return f"the drain hook cannot be run: a temporary file: {error.strerror}; see TMPDIR"

    def _run_hook(self, what: str, output: IO[bytes]) -> str:
        env = {
            **os.environ,
            "NODEVET_HOOK": what,
            "NODEVET_PLAN": self._plan,
            "NODEVET_RUN": self._of_run,
            "NODEVET_LOCKED": self._locked,
            "NODEVET_CHECKS": ",".join(self.checks),
        }
        try:
            code = _run([*shlex.split(self._command), self._host], output, self._seconds, env)
            why = f"the drain hook ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            limit = elapsed(self._seconds)
            return f"the drain hook was killed after {limit} (--drain-timeout)"
        except (OSError, ValueError) as error:
            return f"the drain hook cannot be run: {error}"
        finally:
            if what == DRAIN:  # also of a hook that was killed: it may have begun to drain
                self.offers = _offers(output) or self.offers
            else:
                self._unchanged = _unchanged(output)
        message = _message(output)
        return f"{why}: {message}" if why and message else why


def _offers(output: IO[bytes]) -> tuple[str, ...]:
    output.seek(0)
    first = output.readline(TOLD)
    words = first.removeprefix(OFFER).decode("ascii", "replace").split()
    return tuple(sorted(OFFERS.intersection(words))) if first.startswith(OFFER) else ()


def _unchanged(output: IO[bytes]) -> str:
    output.seek(0)
    lines = output.read(4 * TOLD).splitlines()
    texts = (line.removeprefix(UNCHANGED) for line in lines if line.startswith(UNCHANGED))
    return brief(next(texts, b"").decode("utf-8", "backslashreplace"), TOLD)


def _message(output: IO[bytes]) -> str:
    """The end of the hook's output."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - 4 * TOLD))
    lines = [line for line in output.read().splitlines() if not line.startswith(OFFER)]
    return b"\n".join(lines).decode("utf-8", "backslashreplace").strip()[-TOLD:]


def _run(words: Sequence[str], output: IO[bytes], seconds: float, env: Mapping[str, str]) -> int:
    """The exit code. If the program takes too long, its process group is killed."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # nodevet handles a Ctrl-C
        env=env,
    ) as process:
        try:
            return process.wait(seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
