"""`nodevet pass`: the commands for a node's signed pass."""

import click

from nodevet.cli.groups import Group


@click.group(
    "pass",
    cls=Group,
    folder="passes/on_node",
    group="Vet",
    order=7,
    examples=(
        ("Whether this node has a valid pass", "nodevet pass verify"),
        ("Sign a pass with the gate", "nodevet gate gpu017 -b site.yaml --pass-key KEY"),
    ),
)
def command() -> None:
    """Verify the pass that gate signed for this node."""
