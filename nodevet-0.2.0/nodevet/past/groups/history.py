"""`nodevet history`: the commands that read what was recorded."""

import click

from nodevet.cli.groups import Group


@click.group(
    "history",
    cls=Group,
    folder="past",
    otherwise="host",
    group="History",
    order=1,
    examples=(
        ("What happened to a host", "nodevet history host gpu003"),
        ("The last runs; each command also works without `history`", "nodevet runs"),
    ),
)
def command() -> None:
    """Read what was recorded of runs, hosts and parts.

    Each command also works without `history`: `nodevet diff` is `nodevet history diff`. A word that
    is no command is a host or a part: `nodevet history gpu003`.
    """
