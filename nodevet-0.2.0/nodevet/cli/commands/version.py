"""`nodevet version`: the versions of nodevet and of what it uses."""

import click

from nodevet.cli.help import Command


@click.command(
    "version",
    cls=Command,
    group="Tools",
    examples=(
        ("For a bug report", "nodevet version"),
        ("For a program", "nodevet version --format json"),
    ),
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines, or one JSON object.",
)
def command(form: str) -> None:
    """Print the versions of nodevet and of what it uses.

    `nodevet --version` prints only nodevet's version.
    """
    from nodevet.cli.versions import versions

    known = versions()
    if form == "json":
        import json

        click.echo(json.dumps(known, indent=2))
        return
    width = max(map(len, known))
    for name, value in known.items():
        click.echo(f"{name:{width}}  {value}")
