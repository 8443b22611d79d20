"""What each command says of itself, beside its options: its group, its examples.

    @click.command("check", cls=Command, group="Vet", order=1, examples=(
        ("This machine", "nodevet check @local"),
    ))

Commands of other distributions need none of it: they are listed under "Tools".
"""

from textwrap import indent
from typing import Any, Literal, get_args

import click

Group = Literal["Vet", "Baselines", "Fix", "Tools"]
"""The headings of `nodevet --help`, in the order in which they are shown."""

GROUPS: tuple[str, ...] = get_args(Group)
LAST = 99  # the order of a command that declares none


class Command(click.Command):
    """A command that is listed in a group, with examples; its options stand under headings."""

    def __init__(
        self,
        *arguments: Any,
        group: Group = "Tools",
        order: int = LAST,  # within the group; then by name
        examples: tuple[tuple[str, str], ...] = (),  # what it does, and the command line
        **rest: Any,
    ) -> None:
        super().__init__(*arguments, **rest)
        self.place: tuple[str, int] = group, order
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for what, lines in self.examples:
                    text = indent(f"# {what}\n{lines}\n", " " * formatter.current_indent)
                    formatter.write(text)
        for heading, records in headed(self, ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Option(click.Option):
    """An option that stands under a heading of its own in the help: "Connection"."""

    def __init__(self, *arguments: Any, heading: str = "Options", **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.heading = heading


def headed(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """The options with their help by their headings; those without one come first."""
    found: dict[str, list[tuple[str, str]]] = {"Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record and isinstance(param, click.Option):
            found.setdefault(getattr(param, "heading", "Options"), []).append(record)
    return found


def grouped(commands: dict[str, click.Command]) -> dict[str, list[str]]:
    """The names of commands by their groups, each in its order; a group without any is left out."""
    places = {name: getattr(found, "place", ("Tools", LAST)) for name, found in commands.items()}
    names = sorted(commands, key=lambda name: (places[name][1], name))
    found = {group: [name for name in names if places[name][0] == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}
