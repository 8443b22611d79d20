"""Which store is meant: as the option says, or the environment, or nodevet.toml."""

import os

VARIABLE = "NODEVET_STORE"
NONE = "none"  # the store that keeps nothing


def named(option: str | None, site: str | None = None) -> str | None:
    """The URL that someone asked for, maybe NONE; None: no one did, so it is the user's own.

    `site`: what nodevet.toml says.
    """
    return option or os.environ.get(VARIABLE) or site


def recorded_in(option: str | None, site: str | None, *, reaches: bool) -> str | None:
    """Where a run is recorded: as was asked, or in the user's own store if it `reaches` other
    hosts. None: nowhere; empty: the user's own.
    """
    if option is None and not reaches:
        return None
    url = named(option, site) or ""
    return None if url == NONE else url
