"""`nodevet blame`: since when hosts fail a check, and what changed with it."""

from pathlib import Path

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.past import terminal as recalled


@click.command(
    "blame",
    cls=Command,
    group="History",
    order=7,
    examples=(
        ("What came with the lost persistence mode", "nodevet blame persistence_mode"),
        ("Of one rack, for a ticket", "nodevet blame cpu_governor gpu[01-16] --format markdown"),
    ),
)
@click.argument("check", shell_complete=completing.checks_and_baselines)
@click.argument("hosts", nargs=-1, metavar="[HOSTS]...")
@recalled.redact
@sheets.formats()
@recalled.store
@options.project
@display_options()
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

    The evidence of each host's last good look and of its first bad one is compared, value by value:
    packages, kernel, its command line, units, driver, firmware, boots. What changed on the hosts
    that began to fail together is counted on all others that were looked at in the same two runs.
    Without a host that fails now it is told of the last time.

    \b
    Exit codes:
      0  told, whatever was found
      2  usage or configuration error, or the check never failed
    """
    from nodevet.inventory.nodeset import expand
    from nodevet.past.sheets.blame import blame_sheet
    from nodevet.past.use.blame import blame
    from nodevet.vet.terminal.from_run import tell_killed
    from nodevet.vet.use.context import open_project
    from nodevet.vet.use.stores import open_history, read_from

    catalog, _ = open_project(project)
    those = frozenset(name for word in hosts for name in expand(word)) if hosts else None
    with open_history(store):  # which says what is wrong with it
        pass
    found = blame(read_from(store), check, those, catalog, killed=tell_killed)
    if redact:
        with open_history(store) as history:
            found = recalled.redacted(found, history)
    sheets.show(found, blame_sheet(found, recalled.clock()), form, display)
