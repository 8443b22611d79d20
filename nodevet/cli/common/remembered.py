"""The store that a command reads: what is remembered of earlier runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodevet.store import Store

NONE = "none"
VARIABLE = "NODEVET_STORE"
option = click.option(
    "--store",
    metavar="URL",
    help="What was recorded: sqlite:///PATH or postgresql://USER@HOST/DB.  "
    "[default: $NODEVET_STORE, else a file in ~/.local/state]",
)


def url_of(given: str | None) -> str | None:
    """The store's URL; None: the user's own. Raises UserError for none."""
    from nodevet.run.errors import UserError

    named = given or os.environ.get(VARIABLE) or None
    if named == NONE:
        where = "--store none" if given else f"{VARIABLE}=none"
        raise UserError(f"{where}: nothing is remembered there; name the store")
    return named


@contextmanager
def remembered(given: str | None) -> Iterator["Store"]:
    """The store, which is there already. Raises UserError and StoreError."""
    from nodevet.store import open_store

    with open_store(url_of(given), create=False) as store:
        yield store
