"""Write to standard output and error; a lost stream ends nothing."""

import codecs
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from nodevet.base.errors import UserError
from nodevet.base.printable import block


def say(text: str) -> None:
    """Lines of nodevet's own on standard error, which may repeat what a node says."""
    tell(f"nodevet: {block(text)}", err=True)


def tell(text: str, *, err: bool = False, nl: bool = True) -> bool:
    """Write text. Returns False if that failed; then the stream is silenced."""
    stream = sys.stderr if err else sys.stdout
    try:
        write(stream, f"{text}\n" if nl else text)
    except OSError:  # the pipe's reader, or the terminal, is gone
        silence(stream)
        return False
    return True


def write(stream: TextIO, text: str) -> None:
    """Write text at once, as UTF-8 if the stream knows only ASCII, as click does. Raises
    OSError."""
    binary = getattr(stream, "buffer", None)
    if binary and stream.encoding and codecs.lookup(stream.encoding).name == "ascii":
        stream.flush()
        binary.write(text.encode("utf-8", "replace"))
    else:
        stream.write(text)
    stream.flush()


def needs_output() -> None:
    """Raises UserError if standard output was closed when nodevet began: for a command that only
    prints."""
    if sys.__stdout__ is None:
        raise UserError("standard output is closed, and the answer would be lost")


def say_at_once(text: str) -> None:
    """Like `say`, from the handler of a signal: past the buffer that it may have interrupted."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"nodevet: {text}\n".encode())


def abandon_errors() -> None:
    """Say nothing more on standard error, because another thread hangs in it and holds its lock."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (while we run)


def silence_all() -> None:
    """Let both streams lead nowhere."""
    for stream in (sys.stdout, sys.stderr):
        silence(stream)


def silence(stream: TextIO) -> None:
    """Let a lost stream lead nowhere, or the interpreter fails once more on its way out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
