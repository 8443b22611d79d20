"""Group and examples of each command, for its help.

    @click.command("check", cls=Command, group="Vet", order=1, examples=(
        ("This machine", "nodevet check @local"),
    ))

Commands of other distributions may leave it out: `nodevet --help` lists them under "Tools".
"""

import re
from textwrap import indent
from typing import Any, Literal, get_args

import click

Group = Literal["Vet", "History", "Baselines", "Fix", "Tools"]
"""The headings of `nodevet --help`, in the order in which they are shown."""

GROUPS: tuple[str, ...] = get_args(Group)
NO_BREAK = "\u2011"  # a hyphen that no line is broken after
LAST = 99  # the order of a command that declares none


class Formatter(click.HelpFormatter):
    """Breaks no line within an option: `--fail-on` stays whole."""

    def write_text(self, text: str) -> None:
        super().write_text(_unbroken(text))

    def write_dl(self, rows: Any, *arguments: Any, **rest: Any) -> None:
        super().write_dl([(first, _unbroken(text)) for first, text in rows], *arguments, **rest)

    def write(self, string: str) -> None:
        super().write(string.replace(NO_BREAK, "-"))


class HelpContext(click.Context):
    formatter_class = Formatter


def _unbroken(text: str) -> str:
    return re.sub(r"--?[a-z][a-z-]*", lambda option: option[0].replace("-", NO_BREAK), text)


class Command(click.Command):
    """A command in a group, with examples; its options have headings."""

    context_class = HelpContext

    def __init__(
        self,
        *arguments: Any,
        group: Group = "Tools",
        order: int = LAST,  # within the group; then by name
        examples: tuple[tuple[str, str], ...] = (),  # what it does, and the command line
        short: bool = False,  # of a command in a group: `nodevet --help` lists it, too
        **rest: Any,
    ) -> None:
        super().__init__(*arguments, **rest)
        self.short = short
        self.place: tuple[str, int] = group, order
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for what, lines in self.examples:
                    text = indent(f"# {what}\n{lines}\n", " " * formatter.current_indent)
                    formatter.write(text)
        for heading, records in options_by_heading(self, ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)


class WholeNumber(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A whole number from 1."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[0-9]{1,9}", value) or not int(value):
            self.fail(f"{value!r} is not a whole number from 1", param, ctx)
        return int(value)


class Option(click.Option):
    """An option with its own heading in the help: "Connection"."""

    def __init__(self, *arguments: Any, heading: str = "Options", **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.heading = heading


def options_by_heading(
    command: click.Command, ctx: click.Context
) -> dict[str, list[tuple[str, str]]]:
    """The options with their help by their headings; those without one come first."""
    sections: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record and isinstance(param, click.Option):
            sections.setdefault(getattr(param, "heading", "Options"), []).append(record)
    return sections


def group_commands(commands: dict[str, click.Command]) -> dict[str, list[str]]:
    """The names of commands by group, in their order; empty groups are left out."""
    places = {
        name: getattr(command, "place", ("Tools", LAST)) for name, command in commands.items()
    }
    names = sorted(commands, key=lambda name: (places[name][1], name))
    members_by_group = {
        group: [name for name in names if places[name][0] == group] for group in GROUPS
    }
    return {group: members for group, members in members_by_group.items() if members}
