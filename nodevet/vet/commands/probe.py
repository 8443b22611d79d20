"""`nodevet probe`: print the evidence of this machine."""

import json
import sys
from pathlib import Path

import click

from nodevet import __version__
from nodevet.cli import options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.vet import completing


@click.command(
    "probe",
    cls=Command,
    hidden=True,  # `check --save` reads evidence; this is for a node without SSH, and for a look
    examples=(
        ("The GPUs of this machine", "nodevet probe gpu"),
        (
            "Read now, judge later",
            "nodevet probe > host.json\nnodevet check --evidence host.json -b generic",
        ),
    ),
)
@click.option(
    "--root",
    type=options.FolderParam(exists=True),
    default=Path("/"),
    metavar="DIR",
    show_default=True,
    help="Folder that holds the machine's sys, proc, dev and etc.",
)
@click.option(
    "--deadline",
    type=Duration(1),
    default="80s",
    show_default=True,
    help="Time limit for the whole probe; the document names sections that hang.",
)
@click.argument("sections", nargs=-1, shell_complete=completing.sections)
def command(root: Path, deadline: float, sections: tuple[str, ...]) -> None:
    """Print the evidence of this machine as one JSON document.

    With SECTIONS: only those (see `nodevet list sections`). Changes nothing.
    `nodevet check --evidence FILE` judges the document.
    """
    from nodevet.remote.probe.main import probe
    from nodevet.remote.probe.sections import names
    from nodevet.remote.request import checked_request

    strange = [name for name in sections if name not in names()]
    if strange:
        raise click.UsageError(
            f"unknown section {strange[0]!r}; the sections are {', '.join(names())}"
        )
    request = {
        "do": "probe",
        "root": str(root.resolve()),
        "deadline": deadline,
        "sections": list(sections),
        "probe": __version__,
    }
    document = probe(checked_request(request))
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent))
