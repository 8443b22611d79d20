"""`nodevet pass verify`: whether this node has a valid pass."""

import click

from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.passes.document import ALLOWED, FILE


@click.command(
    "verify",
    cls=Command,
    order=1,
    examples=(
        ("Before slurmd starts", "nodevet pass verify --wait 15m"),
        ("In Slurm's prolog", "nodevet pass verify"),
    ),
)
@click.option(
    "--wait", type=Duration(most=86400.0), default="0s", help="Wait this long for a valid pass."
)
@click.option(
    "--file",
    default=FILE,
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="The pass.",
)
@click.option(
    "--allowed-signers",
    "allowed",
    default=ALLOWED,
    show_default=True,
    type=click.Path(),
    metavar="FILE",
    help="The keys that may sign passes: ssh-keygen(1), ALLOWED SIGNERS.",
)
def command(wait: float, file: str, allowed: str) -> None:
    """Say in one line whether the pass of this node holds.

    An allowed key must have signed it; it must not have expired; and the machine, its boot, its
    NVIDIA driver and its GPUs must be those that were vetted. A value that cannot be read makes it
    invalid.

    \b
    Exit codes:
      0  valid
      1  not valid
      2  usage error; or the file of allowed signers is missing, or others may write it
    """
    import os

    from nodevet.passes.on_node.verify import verify

    code = verify(file, os.path.abspath(allowed), wait)
    click.get_current_context().exit(code)
