"""`nodevet probe`: print the evidence of this machine."""

import json
import sys
from pathlib import Path

import click

from nodevet import __version__
from nodevet.cli.common.seconds import SecondsParam


@click.command("probe")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    help="Folder that holds the machine's sys, proc, dev and etc.",
)
@click.option(
    "--deadline",
    type=SecondsParam(1),
    default=80,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the whole probe; what hangs is left out and named.",
)
@click.argument("sections", nargs=-1)
def command(root: Path, deadline: float, sections: tuple[str, ...]) -> None:
    """Print what this machine is, as one JSON document; with SECTIONS, only those.

    Changes nothing. `nodevet check --evidence FILE` judges the document.
    """
    from nodevet.remote.probe.main import SECTIONS, probe

    strange = [name for name in sections if name not in SECTIONS]
    if strange:
        raise click.UsageError(
            f"unknown section {strange[0]!r}; the sections are {', '.join(SECTIONS)}"
        )
    wish = {"root": str(root.resolve()), "deadline": deadline, "sections": list(sections)}
    document = probe(wish | {"probe": __version__})
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent))
