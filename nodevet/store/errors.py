"""The errors of the store."""

from nodevet.base.errors import UserError


class StoreError(UserError):
    """One sentence: which store, what happened, and what to do next."""


class StoreHeldError(StoreError):
    """Another process records a run of this sweep. The message names it, and since when it runs."""
