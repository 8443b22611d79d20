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
        ("Drain what fails in the last sweep", "nodevet slurm drain --from last"),
    ),
)
def command() -> None:
    """Vet nodes from the hooks of Slurm; drain and resume by a run."""
