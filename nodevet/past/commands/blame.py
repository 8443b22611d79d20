"""`nodevet blame`: since when hosts fail a check, and what changed then."""

from pathlib import Path

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.past import terminal as recalled


@click.command(
    "blame",
    cls=Command,
    group="History",
    order=6,
    examples=(
        ("What changed when persistence mode was lost", "nodevet blame persistence_mode"),
        ("One rack, for a ticket", "nodevet blame cpu_governor gpu[01-16] --format markdown"),
    ),
)
@click.argument("check", shell_complete=completing.checks_and_baselines)
@click.argument("hosts", nargs=-1, metavar="[HOSTS]...")
@recalled.answer
@options.project
def command(
    check: str,
    hosts: tuple[str, ...],
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    project: Project,
    display: Display,
) -> None:
    """Say what changed on the hosts that began to fail a CHECK.

    nodevet compares the evidence of each host's last good visit with that of its first bad one,
    value by value: packages, kernel, kernel command line, units, driver, firmware, boots. It counts
    how often the same change came on hosts that still pass in the same two runs. If no host fails
    now, the answer is about the last time that one did.

    \b
    Exit codes:
      0  answered, whatever was found
      2  usage or configuration error, or the check never failed
    """
    from nodevet.base.nodeset import expand
    from nodevet.past.sheets.blame import blame_sheet
    from nodevet.past.use.blame import blame
    from nodevet.vet.terminal.from_run import tell_killed
    from nodevet.vet.use.context import open_project
    from nodevet.vet.use.stores import open_history, read_from

    catalog, _ = open_project(project)
    those = frozenset(name for word in hosts for name in expand(word)) if hosts else None
    with open_history(store):  # which says what is wrong with it
        pass
    answer = blame(read_from(store), check, those, catalog, killed=tell_killed)
    if redact:
        with open_history(store) as history:
            answer = recalled.redact_document(answer, history)
    sheets.show(answer, blame_sheet(answer, recalled.clock()), form, display)
