"""`nodevet report`: render a saved run again."""

from pathlib import Path

import click

from nodevet.cli import options, session
from nodevet.cli.output import Output


@click.command("report")
@click.argument("run", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.formats
@options.previous
def command(run: Path, formats: tuple[str, ...], previous: Path | None) -> None:
    """Render a RUN (written with --format json:FILE or jsonl:FILE) in other formats.

    The exit code is the one that the run itself had.
    """
    output = Output(formats)
    before = session.read_run(previous) if previous else None
    saved = session.read_run(run)
    output.finish(saved, before, streamed=False)
    click.get_current_context().exit(output.code(saved))
