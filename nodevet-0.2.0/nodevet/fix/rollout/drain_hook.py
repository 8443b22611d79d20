"""The site's drain hook, for one node.

nodevet calls it with the host as its last argument. If the first line that it prints is
`nodevet-hook: undrain reboot`, or has only one of these words, nodevet also calls it to give the
host back or to reboot it. NODEVET_HOOK says which call it is; NODEVET_PLAN and NODEVET_CHECKS name
the plan and its checks.
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

TOLD = 300  # characters of what a hook said
OFFER = b"nodevet-hook:"
DRAIN, UNDRAIN, REBOOT = "drain", "undrain", "reboot"
OFFERS = frozenset({UNDRAIN, REBOOT})


class DrainHook:
    """Of one node in one run. `offers`: what else the hook can do; None until it was called."""

    def __init__(self, command: str, host: str, seconds: float, plan: str = "") -> None:
        self._command = command
        self._host = host
        self._seconds = seconds
        self._plan = plan
        self.checks: Sequence[str] = ()  # that the plan's fixes of this node answer
        self.offers: tuple[str, ...] | None = None
        self.given_back = False

    def drain(self) -> str:
        """Why the node is not drained; empty if it is."""
        self.offers = self.offers or ()
        why = self._call(DRAIN)
        return f"not drained: {why}" if why else ""

    def reboot(self) -> str:
        """Why the hook did not order the reboot; empty if it did."""
        return self._call(REBOOT)

    def undrain(self) -> str:
        """Why the node is not given back; empty if it is, or if the hook cannot do that."""
        if UNDRAIN not in (self.offers or ()):
            return ""
        if why := self._call(UNDRAIN):
            return f"stays drained: {why}"
        self.offers, self.given_back = None, True
        return ""

    def _call(self, what: str) -> str:
        """Run the hook without a shell. Returns why it failed; empty if it did not."""
        env = {
            **os.environ,
            "NODEVET_HOOK": what,
            "NODEVET_PLAN": self._plan,
            "NODEVET_CHECKS": ",".join(self.checks),
        }
        with tempfile.TemporaryFile() as output:
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
            message = _message(output)
        return f"{why}: {message}" if why and message else why


def _offers(output: IO[bytes]) -> tuple[str, ...]:
    output.seek(0)
    first = output.readline(TOLD)
    words = first.removeprefix(OFFER).decode("ascii", "replace").split()
    return tuple(sorted(OFFERS.intersection(words))) if first.startswith(OFFER) else ()


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
