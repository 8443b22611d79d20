"""What a use case cannot do."""


class UsageError(Exception):
    """What was asked for cannot be done; the message says why, and what to do."""
