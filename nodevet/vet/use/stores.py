"""Which store is meant, by an option, the environment or nodevet.toml; and the store, opened to be
read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.settings import settings

if TYPE_CHECKING:
    from nodevet.store import Store

VARIABLE = "NODEVET_STORE"
NONE = "none"  # the store that keeps nothing


def named(option: str | None, site: str | None = None) -> str | None:
    """The URL that the option, the environment or nodevet.toml (`site`) names, maybe NONE. None:
    the user's own store.
    """
    return option or os.environ.get(VARIABLE) or site


def recorded_in(option: str | None, site: str | None, *, reaches: bool) -> str | None:
    """The URL of the store that records a run: the one that was named, or the user's own (empty) if
    the run `reaches` other hosts. None: record nothing.
    """
    if option is None and not reaches:
        return None
    url = named(option, site) or ""
    return None if url == NONE else url


class NothingRecordedError(UserError):
    """There is no store, or nothing is in it; the message says what records something."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"no run has been recorded in {place}; "
            "`nodevet sweep` or `nodevet check` over SSH records one"
        )


class NoHistoryError(UserError):
    """Nothing is to be remembered: `--store none`."""


@contextmanager
def open_history(url: str | None, *, fixes: bool = False) -> Iterator["Store"]:
    """A store that holds at least one run; with `fixes`, one of fixes or a plan will do. Raises
    NothingRecordedError and StoreError."""
    from nodevet.store import open_store
    from nodevet.store.engine import is_there
    from nodevet.store.urls import default_url, parse_url, url_text

    url_asked = read_from(url) or default_url()
    place = parse_url(url_asked)
    if place.drivername == "sqlite" and not is_there(place):
        raise NothingRecordedError(url_text(place))
    with open_store(url_asked, create=False) as store:
        if not store.runs(limit=1) and not (fixes and (store.fix_runs(limit=1) or store.plans())):
            raise NothingRecordedError(store.name)
        yield store


def read_from(option: str | None) -> str | None:
    """The URL of the store that is meant; None: the user's own. Raises NoHistoryError."""
    url = named(option) or settings().store_url
    if url == NONE:
        raise NoHistoryError("--store none: there is no history to read")
    return url


@contextmanager
def asked_store(option: str | None, *, fixes: bool = False) -> "Iterator[Store | None]":
    """None: nothing is recorded. `fixes`: see open_history. Raises UserError."""
    url = None if option == NONE else recorded_in(option, settings().store_url, reaches=True)
    if url is None:
        yield None
        return
    try:
        with open_history(url or None, fixes=fixes) as store:
            yield store
    except NothingRecordedError:
        yield None
