"""`nodevet bmc`: the commands for management controllers."""

import click

from nodevet.cli.groups import Group


@click.group(
    "bmc",
    cls=Group,
    folder="bmc",
    group="Vet",
    order=7,
    examples=(("What the BMC of a node reports", "nodevet bmc show gpu003 -i fleet.yaml"),),
)
def command() -> None:
    """Ask the management controllers (BMCs) of nodes."""
