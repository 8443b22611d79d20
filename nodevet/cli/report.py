"""`nodevet report`: render a saved run again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet import report
from nodevet.cli import UserError, options, saved, session
from nodevet.cli.output import Output

if TYPE_CHECKING:
    from nodevet.result import Result


@click.command("report")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@options.formats
@options.previous
def command(run: Path, formats: tuple[str, ...], previous: Path | None) -> None:
    """Render a RUN in other formats: a file that was written with --format json:FILE or
    jsonl:FILE, or the folder of an apply, of which its journal says what it came to by now,
    with what was rolled back since.

    The exit code is the one that the run itself had.
    """
    output = Output(formats)
    if run.is_dir():
        _fixes(run, output, previous)
    before = session.read_run(previous) if previous else None
    if previous and before:
        saved.tell_age(previous, before, most=saved.PREVIOUS)
    found = session.read_run(run)
    saved.tell_age(run, found, most=saved.DAY)
    output.finish(found, before, streamed=False)
    click.get_current_context().exit(output.code(found))


def _fixes(folder: Path, output: Output, previous: Path | None) -> None:
    """What a run of fixes came to."""
    if previous:
        raise click.UsageError("--previous: a run of fixes is compared with none")
    result = _account(folder)
    output.write(lambda sink: report.render(sink.format, result), output.sinks)
    click.get_current_context().exit(output.code(result))


def _account(folder: Path) -> "Result":
    from nodevet.remedy.journal.folder import RunError, RunFolder

    try:
        return RunFolder(folder).account()
    except RunError as error:
        raise UserError(str(error)) from error
