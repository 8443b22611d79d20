"""What can go wrong with the store, in one sentence."""


class StoreError(Exception):
    """What happened, to which store, and what to do next."""


class StoreHeldError(StoreError):
    """Another process records a run of this sweep; the message says which one, and since when."""
