"""`nodevet report`: render a saved run, diagnosis or answer of `feed` again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet.cli.common import completing, options
from nodevet.cli.common.command import Command
from nodevet.cli.common.display import ADVICE, QUIET, Display, Screen, display_options

if TYPE_CHECKING:
    from nodevet.cli.common.output import Sink, Sinks


@click.command(
    "report",
    cls=Command,
    group="Vet",
    order=3,
    examples=(
        ("A saved run, for an issue", "nodevet report last.json --format markdown"),
        ("A diagnosis, as a page", "nodevet report gpu007.json --format html:gpu007.html"),
        ("A run of fixes, for CI", "nodevet report runs/7f3a91c2-1 --format junit:fixes.xml"),
    ),
)
@click.argument(
    "run", shell_complete=completing.saved, type=click.Path(exists=True, path_type=Path)
)
@options.formats
@options.everything
@options.shadow
@options.previous
@display_options(QUIET, ADVICE)
def command(
    run: Path,
    formats: tuple[str, ...],
    everything: bool,
    shadow: bool,
    display: Display,
) -> None:
    """Render a saved RUN in other formats.

    RUN is a file that check, gate, diagnose or feed wrote with --format json:FILE or jsonl:FILE, or
    the folder of an apply, which is reported as its journal stands now, with what was rolled back
    since. Of a diagnosis, --all tells the rules; of an answer of feed, it draws the bars.

    The exit code is the one that the command itself had.
    """
    from nodevet.cli.common.output import Sinks
    from nodevet.cli.common.runs import read_report
    from nodevet.diagnosis.model import Diagnosis
    from nodevet.diagnosis.sheet import diagnosis_sheet
    from nodevet.feed.sheet import feed_sheet
    from nodevet.model import Run
    from nodevet.sheet import FORMATS

    if run.is_dir():
        _fixes(run, Sinks(formats, display=display))
    found = read_report(run)
    if isinstance(found, Diagnosis):
        sinks = Sinks(formats, display=display, known=FORMATS)
        sinks.show(found, lambda: diagnosis_sheet(found, rules=everything))
        click.get_current_context().exit(found.exit_code)
    if not isinstance(found, Run):
        answer = found
        sinks = Sinks(formats, display=display, known=FORMATS)
        sinks.show(answer, lambda: feed_sheet(answer, plot=everything))
        click.get_current_context().exit(found.exit_code)
    sinks = Sinks(formats, display=display)
    sinks.finish(found, streamed=False, everything=everything, shadow=shadow)
    click.get_current_context().exit(sinks.code(found))


def _fixes(folder: Path, sinks: "Sinks") -> None:
    """What a run of fixes came to."""
    from nodevet.run.fix_run import open_run, rendered

    opened = open_run(folder)
    result = opened.account()

    def render(sink: "Sink") -> str:
        screen = Screen() if sink.file else sinks.display.out
        return rendered(opened, sink.format, result, colour=screen.colour, width=screen.width)

    sinks.write(render, sinks.sinks)
    click.get_current_context().exit(sinks.code(result))
