"""What can go wrong with a report."""


class ReportError(Exception):
    """An unknown format or option, or a unreadable saved run; the message is for the user."""
