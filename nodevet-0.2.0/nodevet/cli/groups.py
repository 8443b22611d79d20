"""A group of a feature's commands, such as `nodevet history`."""

from typing import Any

import click

from nodevet.cli import found
from nodevet.cli.help import Command


class Group(Command, click.Group):
    """The commands of a feature's folder. If the first word is none of them, the command
    `otherwise` gets it.
    """

    def __init__(self, *arguments: Any, folder: str, otherwise: str = "", **rest: Any) -> None:
        super().__init__(*arguments, no_args_is_help=True, **rest)
        self._modules = found.members(folder)
        self._otherwise = otherwise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._modules.get(cmd_name)
        return found.load(module) if module else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does."""
        is_known = not self._otherwise or args[0] in self._modules or args[0].startswith("-")
        return super().resolve_command(ctx, args if is_known else [self._otherwise, *args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in their order, then examples and options."""
        known = {name: found.load(module) for name, module in self._modules.items()}
        order = sorted(known, key=lambda name: (getattr(known[name], "place", ("", 99))[1], name))
        with formatter.section("Commands"):
            width = formatter.width - 6 - max(map(len, order))
            formatter.write_dl([(name, known[name].get_short_help_str(width)) for name in order])
        super().format_options(ctx, formatter)
