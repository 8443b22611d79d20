"""`nodevet schema`: the JSON Schemas of baselines, for editors, and of what nodevet writes."""

import json

import click

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.cli import options
from nodevet.cli.help import Command

LISTED = "\n".join(f"      {name:9} {kind.about}" for name, kind in kinds().items())


@click.command(
    "schema",
    cls=Command,
    group="Baselines",
    order=3,
    help=f"""Print the JSON Schema of a kind of document.

    \b
    KIND is one of:
{LISTED}

    The schema of baselines knows every check of this project. Write it next to your baselines, and
    begin each with `# yaml-language-server: $schema=nodevet.schema.json`.
    """,
    examples=(
        ("For the editor", "nodevet schema > nodevet.schema.json"),
        ("For the files of --format json", "nodevet schema run"),
    ),
)
@click.argument("kind", type=click.Choice(tuple(kinds())), default="baseline", metavar="[KIND]")
@options.project
def command(kind: str, project: Project) -> None:
    """Print the JSON Schema of a kind of document."""
    click.echo(json.dumps(kinds()[kind].schema(project), indent=2, ensure_ascii=False))
