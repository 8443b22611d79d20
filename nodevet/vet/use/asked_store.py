"""The store that a plan asks what happened before; nothing is asked where nothing is recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.settings import settings
from nodevet.vet.use.open_store import NothingRecordedError, open_history
from nodevet.vet.use.which_store import NONE, recorded_in

if TYPE_CHECKING:
    from nodevet.store import Store


@contextmanager
def asked_store(option: str | None, *, fixes: bool = False) -> "Iterator[Store | None]":
    """None: nothing is recorded. `fixes`: see open_history. Raises UserError."""
    url = None if option == NONE else recorded_in(option, settings().store_url, reaches=True)
    if url is None:
        yield None
        return
    from nodevet.store import StoreError

    try:
        with open_history(url or None, fixes=fixes) as store:
            yield store
    except NothingRecordedError:
        yield None
    except StoreError as error:
        raise UserError(str(error)) from error
