"""`nodevet k8s`: the commands for Kubernetes."""

import click

from nodevet.cli.groups import Group


@click.group(
    "k8s",
    cls=Group,
    folder="k8s",
    group="Vet",
    order=8,
    examples=(
        ("Write the verdicts of a run to the nodes", "nodevet k8s report last.json"),
        ("Set old verdicts to Unknown", "nodevet k8s expire --max-age 30m"),
    ),
)
def command() -> None:
    """Write verdicts to Kubernetes nodes; drain them for fixes."""
