"""What can go wrong with the store, in one sentence."""


class StoreError(Exception):
    """What happened, to which store, and what to do next."""
