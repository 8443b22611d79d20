"""What the commands of `nodevet history` share."""

from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import display_options

if TYPE_CHECKING:
    from nodevet.sheet.clock import Clock
    from nodevet.store import Store

Found = TypeVar("Found")
store = options.store_option("The history to read: sqlite:///PATH or postgresql://USER@HOST/DB.")

redact = click.option(
    "--redact",
    is_flag=True,
    help="Leave out the names of hosts, files and owners, so that you can share the output; ids "
    "of parts stay.",
)

answer = options.apply(redact, sheets.formats(), store, display_options())
"""How to show the answer, and from which store it comes."""


def clock() -> "Clock":
    """The clock of the reader."""
    from nodevet.sheet.clock import Clock

    return Clock(now=local_now())


def local_now() -> datetime:
    return datetime.now().astimezone()


def redact_document(document: Found, history: "Store") -> Found:
    """A copy of a document that may leave the site."""
    from nodevet.past.redaction import Redactor

    return Redactor(history.hosts()).document(document)
