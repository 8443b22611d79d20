"""`nodevet report`: render a saved run, diagnosis or answer of `feed` again."""

from pathlib import Path

import click

from nodevet.cli import completing
from nodevet.cli.display import ADVICE, QUIET, Display, display_options
from nodevet.cli.help import Command
from nodevet.vet import options as vetting


@click.command(
    "report",
    cls=Command,
    group="Vet",
    order=3,
    examples=(
        ("A saved run, as Markdown", "nodevet report last.json --format markdown"),
        ("A diagnosis, as a page", "nodevet report gpu007.json --format html:gpu007.html"),
        ("A run of fixes, for CI", "nodevet report runs/7f3a91c2-1 --format junit:fixes.xml"),
    ),
)
@click.argument(
    "run", shell_complete=completing.saved, type=click.Path(exists=True, path_type=Path)
)
@vetting.formats
@vetting.everything
@vetting.shadow
@vetting.previous
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
    the folder of an apply. The report of an apply includes later rollbacks. --all shows the rules
    of a diagnosis and the bars of a feed.

    The exit code is that of the original command. Programs read nagios, npd and nico as the state
    of the hosts now: a run older than a day is refused there.
    """
    from nodevet.base.features import feature_modules
    from nodevet.cli.speech import say
    from nodevet.sheet import FORMATS
    from nodevet.vet.terminal.output import Sinks
    from nodevet.vet.terminal.saved_reports import read_report, require_recent

    context = click.get_current_context()
    if run.is_dir():
        for feature in feature_modules("folders"):
            context.exit(feature.show_folder(run, Sinks(formats, display=display)))
    document, kind = read_report(run)
    if kind is not None:
        sinks = Sinks(formats, display=display, known=FORMATS)
        sinks.show(document, lambda: kind.sheet(document, everything))
        context.exit(document.exit_code)
    sinks = Sinks(formats, display=display, everything=everything)
    require_recent(run, document, [sink.format for sink in sinks.sinks])
    if everything and any(host.counted for host in document.hosts):
        say(f"{run}: written without --all: findings that passed are only counted")
    sinks.finish(document, streamed=False, shadow=shadow)
    context.exit(sinks.code(document))
