"""Errors that the user can correct."""


class UserError(Exception):
    """nodevet cannot do what the user asked; the message says why and what to do. Exit code 2."""


class NothingDoneError(UserError):
    """As UserError, of a change that was asked for: none of it was made."""
