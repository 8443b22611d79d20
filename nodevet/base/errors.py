"""What the user can correct."""


class UserError(Exception):
    """What was asked for cannot be done; the message says why, and what to do. Exit code 2."""
