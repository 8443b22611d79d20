"""`nodevet pass show`: what the pass of this node says."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.passes.document import ALLOWED, FILE


@click.command(
    "show",
    cls=Command,
    order=2,
    examples=(("What was vetted, when and by what", "nodevet pass show"),),
)
@click.option(
    "--file", default=FILE, show_default=True, type=click.Path(), metavar="FILE", help="The pass."
)
@sheets.formats()
@display_options()
def command(file: str, form: tuple[str, Path | None], display: Display) -> None:
    """Show what the pass says, and whether it holds.

    \b
    Exit codes:
      0  shown; also a pass that is not valid
      1  there is no pass, or it cannot be read
    """
    from nodevet.base import typed
    from nodevet.cli.speech import say
    from nodevet.passes.answer import PassAnswer
    from nodevet.passes.document import PassError
    from nodevet.passes.on_node.signed import read_pass
    from nodevet.passes.on_node.verify import look
    from nodevet.passes.sheet import pass_fields, pass_sheet

    try:
        values = pass_fields(read_pass(file))
    except PassError as error:
        say(str(error))
        click.get_current_context().exit(1)
    code, why = look(file, ALLOWED)
    sheet = pass_sheet(values, why, is_valid=code == 0)
    answer = typed.convert({**values, "valid": code == 0, "why": why}, PassAnswer)
    sheets.show(answer, sheet, form, display)
