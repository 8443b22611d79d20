"""`nodevet schema`: the JSON Schema of baselines, for editors."""

import json
from pathlib import Path

import click

from nodevet.cli.common import options
from nodevet.cli.common.command import Command


@click.command(
    "schema",
    cls=Command,
    group="Baselines",
    order=3,
    examples=(("For the editor", "nodevet schema > nodevet.schema.json"),),
)
@options.project
def command(project: Path) -> None:
    """Print the JSON Schema of a baseline.

    It knows every check of this project. Write it next to your baselines, and begin each with
    `# yaml-language-server: $schema=nodevet.schema.json`.
    """
    from nodevet.baseline.schema import schema
    from nodevet.run.context import open_project

    catalog, _ = open_project(project)
    click.echo(json.dumps(schema(catalog), indent=2, ensure_ascii=False))
