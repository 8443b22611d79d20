"""Errors about reports."""


class ReportError(Exception):
    """An unknown format or option, or an unreadable saved run; the message is for the user."""
