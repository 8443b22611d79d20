"""The store, opened to be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.settings import settings
from nodevet.vet.use.which_store import NONE, named

if TYPE_CHECKING:
    from nodevet.store import Store


class NothingRecordedError(UserError):
    """There is no store, or nothing is in it; the message says what records something."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"no run has been recorded in {place}; `nodevet sweep` or `nodevet check` records one"
        )


class NoHistoryError(UserError):
    """Nothing is to be remembered: `--store none`."""


@contextmanager
def open_history(url: str | None, *, fixes: bool = False) -> Iterator["Store"]:
    """A store that holds at least one run; with `fixes`, one of fixes or a plan will do. Raises
    NothingRecordedError and StoreError."""
    from nodevet.store import open_store
    from nodevet.store.engine import default_url, is_there, parsed, shown

    asked = read_from(url) or default_url()
    place = parsed(asked)
    if place.drivername == "sqlite" and not is_there(place):
        raise NothingRecordedError(shown(place))
    with open_store(asked, create=False) as store:
        if not store.runs(limit=1) and not (fixes and (store.fix_runs(limit=1) or store.plans())):
            raise NothingRecordedError(store.name)
        yield store


def read_from(option: str | None) -> str | None:
    """The URL of the store that is meant; None: the user's own. Raises NoHistoryError."""
    asked = named(option) or settings().store_url
    if asked == NONE:
        raise NoHistoryError("--store none: no history is kept, so there is none to read")
    return asked
