"""The command line: how nodevet begins and ends, and what commands share.

The group of all commands is nodevet.cli.group, which imports click. A feature that has `quick.py`
answers the plainest command lines without it, since schedulers run these every minute.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from nodevet.base.errors import UserError as UserError  # for the commands of other distributions
from nodevet.base.features import feature_modules
from nodevet.cli.endings import USAGE as USAGE
from nodevet.cli.endings import ReaderLeftError


def __getattr__(name: str) -> Any:
    """`nodevet`, the group of all commands, imported when it is asked for."""
    if name != "nodevet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nodevet.cli.group import nodevet

    return nodevet


def main() -> NoReturn:
    """Run a command. Exit codes: see `nodevet check --help`."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _interrupt)
    _standard_streams()
    if request := os.environ.get("_NODEVET_COMPLETE"):
        from nodevet.cli.group import complete

        complete(request)
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(128 + signal.SIGINT)
    except (BrokenPipeError, ReaderLeftError):
        from nodevet.cli.speech import silence_all

        silence_all()
        sys.exit(USAGE)
    except Exception as error:
        if os.environ.get("NODEVET_DEBUG"):
            import traceback

            traceback.print_exc()
        elif _is_ours(error):
            _say(_words(error))
        else:
            _say(
                f"internal error (please report): {type(error).__name__}: {error}\n"
                "NODEVET_DEBUG=1 shows where"
            )
        sys.exit(USAGE)


def _run(words: Sequence[str]) -> int:
    """Run the command of this line; its exit code."""
    for feature in feature_modules("quick"):
        command = feature.command(words)
        if command is not None:
            return int(command())
    from nodevet.cli.group import run

    return run(words)


def _standard_streams() -> None:
    """Makes a closed stream an empty one, and one that knows few characters print escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  (while we run)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does, with a report; so does a lost terminal, once."""
    if number == signal.SIGHUP:  # from the shell, and once more from the kernel
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


def _is_ours(error: Exception) -> bool:
    """Whether the message was written for the user: the errors that our packages define."""
    return isinstance(error, OSError) or type(error).__module__.startswith("nodevet.")


def _words(error: Exception) -> str:
    """The message, without the number that Python puts before one of the system's."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
        return "the current folder was removed: cd to another"
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _has_folder() -> bool:
    try:
        return bool(Path.cwd())
    except OSError:
        return False


def _say_interrupted() -> None:
    from nodevet.cli.speech import tell

    if sys.stderr.isatty():
        tell("", err=True)  # past the ^C that the terminal shows
    _say("interrupted")


def _say(text: str) -> None:
    from nodevet.cli.speech import say

    say(text)
