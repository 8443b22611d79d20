"""The command line: the group of all commands, and what commands share.

Each command is a file of its feature that holds one click command named `command`: arguments and
exit codes only. It is imported when it is run, so that a command pays only for what it uses.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from nodevet import __version__
from nodevet.base.errors import UserError as UserError  # for the commands of other distributions
from nodevet.cli import found

USAGE = 2  # exit code: usage or configuration


class Commands(click.Group):
    """Finds each command in the file of its name, else in other distributions."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from nodevet.cli import plugins

        return sorted(found.modules().keys() | plugins.names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = found.modules().get(cmd_name)
        if module is None:
            from nodevet.cli import plugins

            return plugins.find(cmd_name)
        return found.load(module)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands first: that is what most people look for."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by the groups that they declare."""
        from nodevet.cli.help import grouped

        names = self.list_commands(ctx)
        known = {name: command for name in names if (command := self.get_command(ctx, name))}
        listed = {name: command for name, command in known.items() if _is_listed(name, command)}
        widest = max(map(len, listed))
        limit = formatter.width - 6 - widest
        for group, members in grouped(listed).items():
            with formatter.section(group):
                formatter.write_dl(
                    [(f"{n:{widest}}", listed[n].get_short_help_str(limit)) for n in members]
                )

    def invoke(self, ctx: click.Context) -> object:
        """As click does; but it writes of an interrupt to a terminal that may be lost."""
        try:
            with _reader_left():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error

    def make_context(self, *words: Any, **extra: Any) -> click.Context:
        """As click does, which prints the help here."""
        with _reader_left():
            return super().make_context(*words, **extra)


def _is_listed(name: str, command: click.Command) -> bool:
    """Whether `nodevet --help` lists it: a command of a group only if it is short for that."""
    in_group = name in found.grouped_names() and not getattr(command, "short", False)
    return not command.hidden and not in_group


class ReaderLeftError(Exception):
    """Who reads standard output has left. Of a BrokenPipeError click would make exit code 1, which
    means that something fails."""


@contextlib.contextmanager
def _reader_left() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeftError from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`nodevet COMMAND --help` says what a command takes, with examples.",
)
@click.version_option(__version__, prog_name="nodevet")
def nodevet() -> None:
    """Vet GPU nodes: compare what a node is with what its baseline says it should be.

    \b
    nodevet check 'gpu[001-128]' -b nvidia-h100-sxm    vet hosts over SSH
    nodevet check @local -b generic                    vet this machine
    nodevet explain pcie_link                          describe a check
    """


def main() -> NoReturn:
    """Run a command. Exit codes: see `nodevet check --help`."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, _interrupt)
    _standard_streams()
    if request := os.environ.get("_NODEVET_COMPLETE"):
        _complete(request)
    try:
        # not standalone: the errors come here, and an exit code comes back as the result
        code = nodevet.main(prog_name="nodevet", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2: `nodevet`, `nodevet sim`
            click.echo(error.format_message())
            sys.exit(0)
        _show(error)
        _after_mistake(sys.argv[1:])
        sys.exit(USAGE)
    except (KeyboardInterrupt, click.Abort):
        _say_interrupted()
        sys.exit(128 + signal.SIGINT)
    except (BrokenPipeError, ReaderLeftError):
        _silence()
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


def _complete(request: str) -> NoReturn:
    """Answer a shell, and never with an error: it would show amid the line that is typed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    with contextlib.suppress(Exception):
        from nodevet.cli.completing import answer

        answer(nodevet, request)
    sys.exit(0)


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


def _show(error: click.ClickException) -> None:
    from nodevet.cli.mistakes import reworded

    try:
        reworded(error).show()
    except OSError:
        _silence()


def _after_mistake(words: list[str]) -> None:
    """Features that left something of an earlier run, such as a verdict, put that right."""
    from nodevet.base.features import feature_modules

    for feature in feature_modules("after_mistake"):
        try:
            feature.after_mistake(words)
        except Exception as error:  # the mistake itself was said
            _say(str(error))


def _silence() -> None:
    from nodevet.cli.speech import silence

    for stream in (sys.stdout, sys.stderr):
        silence(stream)


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
