"""The group of all commands, by click.

Each command is a file of its feature that holds one click command named `command`: arguments and
exit codes only. It is imported when it is run, so that a command pays only for what it uses.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from nodevet import __version__
from nodevet.cli import found
from nodevet.cli.endings import USAGE, ReaderLeftError
from nodevet.cli.speech import say, silence_all


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
        from nodevet.cli.help import group_commands

        names = self.list_commands(ctx)
        known = {name: command for name in names if (command := self.get_command(ctx, name))}
        listed = {name: command for name, command in known.items() if _is_listed(name, command)}
        widest = max(map(len, listed))
        limit = formatter.width - 6 - widest
        for group, members in group_commands(listed).items():
            with formatter.section(group):
                formatter.write_dl(
                    [(f"{n:{widest}}", listed[n].get_short_help_str(limit)) for n in members]
                )

    def invoke(self, ctx: click.Context) -> object:
        """Like click's, but it reports an interrupt on a terminal that may be lost."""
        try:
            with _reader_left():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error

    def make_context(self, *words: Any, **extra: Any) -> click.Context:
        """Like click, which prints the help here."""
        with _reader_left():
            return super().make_context(*words, **extra)


def _is_listed(name: str, command: click.Command) -> bool:
    """Whether `nodevet --help` lists it: a command of a group only if it is short for that."""
    in_group = name in found.grouped_names() and not getattr(command, "short", False)
    return not command.hidden and not in_group


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


def run(words: Sequence[str]) -> int:
    """Run the command of this line; its exit code. Raises what the command raises."""
    try:
        # not standalone: the errors come here, and an exit code comes back as the result
        code = nodevet.main(list(words), prog_name="nodevet", standalone_mode=False)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2: `nodevet`, `nodevet sim`
            click.echo(error.format_message())
            return 0
        _show(error)
        _after_mistake(words)
        return USAGE
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return code if isinstance(code, int) else 0


def complete(request: str) -> NoReturn:
    """Answer a shell, and never with an error: it would show amid the line that is typed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    with contextlib.suppress(Exception):
        from nodevet.cli.completing import answer

        answer(nodevet, request)
    sys.exit(0)


def _show(error: click.ClickException) -> None:
    from nodevet.cli.mistakes import reworded

    try:
        reworded(error).show()
    except OSError:
        silence_all()


def _after_mistake(words: Sequence[str]) -> None:
    """Features that left something of an earlier run, such as a verdict, put that right."""
    from nodevet.base.features import feature_modules

    for feature in feature_modules("after_mistake"):
        try:
            feature.after_mistake(words)
        except Exception as error:  # the mistake itself was said
            say(str(error))
