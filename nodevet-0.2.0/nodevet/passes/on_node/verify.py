"""`nodevet pass verify`, without click: slurmd and its prolog wait for it."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from nodevet.passes.document import ALLOWED, FILE, PassError, parse
from nodevet.passes.on_node.facts import difference, seconds_left
from nodevet.passes.on_node.signed import TrustError, signed_text

VALID, INVALID, UNTRUSTED = 0, 1, 2
STDERR = 2
PAUSE = 1.0  # seconds between two looks


def answer(words: Sequence[str]) -> int | None:
    """The exit code of the plain command line. None: click runs it, with its options."""
    return None if words else verify()


def verify(path: str = FILE, allowed: str = ALLOWED, wait: float = 0.0) -> int:
    """Say whether a pass holds, and return the exit code. `wait`: seconds to wait for one."""
    _open_streams()
    end = time.monotonic() + wait
    while True:
        code, text = look(path, allowed)
        if code != INVALID or time.monotonic() >= end:
            with suppress(OSError):  # nobody reads it; the exit code is the answer
                os.write(2 if code else 1, f"{text}\n".encode())
            return code
        time.sleep(PAUSE)


def look(path: str = FILE, allowed: str = ALLOWED, root: str = "/") -> tuple[int, str]:
    """The exit code, and one line that says why. The signature is verified first: what an unsigned
    text says is no reason."""
    try:
        text, signer = signed_text(path, allowed)
        values = parse(text)
        if why := difference(values, root):
            return INVALID, f"no valid pass: {why}"
        hours = seconds_left(values, root) / 3600
        return VALID, f"pass of {values['host'][0]} by {signer} holds for {hours:.1f} h"
    except TrustError as error:
        return UNTRUSTED, f"no valid pass: {error}"
    except (PassError, OSError, ValueError) as error:
        return INVALID, f"no valid pass: {error}"


def _open_streams() -> None:
    """Let closed standard streams lead nowhere, so that no other file takes their numbers."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(file)
