"""The folder of a run of fixes, for `nodevet report`."""

from pathlib import Path

from nodevet.cli.display import Screen
from nodevet.fix.formats import exit_code
from nodevet.fix.use.fix_run import open_run, render_report
from nodevet.vet.terminal.output import Sinks
from nodevet.vet.use.reports import Sink


def show_folder(folder: Path, sinks: Sinks) -> int:
    """Write the report of a run of fixes; returns its exit code."""
    opened = open_run(folder)
    result = opened.account()

    def render(sink: Sink) -> str:
        screen = Screen() if sink.file else sinks.display.out
        return render_report(opened, sink.format, result, colour=screen.colour, width=screen.width)

    sinks.write(render, sinks.sinks)
    return exit_code(sinks.printed, result) if sinks.printed else result.exit_code
