"""`nodevet history host`: what happened to a host, or to a part."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "host",
    cls=Command,
    group="History",
    order=3,
    examples=(
        ("What happened to a host", "nodevet history host gpu003"),
        ("A GPU, by its UUID or serial number", "nodevet history host GPU-d5b35768"),
    ),
)
@click.argument("what", metavar="HOST|PART", shell_complete=recorded.hosts)
@recalled.answer
def command(
    what: str,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Show what happened to a HOST or a PART.

    For a host: boots, what failed from when to when, parts that came and went, what was planned,
    fixed and rolled back, and nights in which it could not be vetted. For a part (GPU, NIC, drive):
    its hosts, its faults and its repairs. PART is a UUID, GUID or serial number, or the beginning
    of one.

    \b
    Exit codes:
      0  shown
      2  usage or configuration error, or nothing is recorded of it
    """
    from nodevet.past.passport import Passport
    from nodevet.past.sheets.passport import passport_sheet
    from nodevet.past.sheets.story import story_sheet
    from nodevet.past.use.story import find_story
    from nodevet.vet.use.stores import open_history

    clock = recalled.clock()
    with open_history(store, fixes=True) as history:
        story = find_story(history, what)
        story = recalled.redact_document(story, history) if redact else story
    if isinstance(story, Passport):
        sheet = passport_sheet(story, clock, kind="history")
    else:
        sheet = story_sheet(story, clock)
    sheets.show(story, sheet, form, display)
