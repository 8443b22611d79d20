"""`nodevet slurm`: the commands for Slurm's hooks and for its controller."""

import click

from nodevet.cli.groups import Group


@click.group(
    "slurm",
    cls=Group,
    folder="slurm",
    group="Vet",
    order=6,
    examples=(
        ("HealthCheckProgram: drain this node if it fails", "nodevet slurm health -b site.yaml"),
    ),
)
def command() -> None:
    """Vet nodes from the hooks of Slurm, and drain those that fail."""
