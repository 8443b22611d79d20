"""Colours of a terminal. Pure."""

RED, YELLOW, MAGENTA, GREEN, DIM, BOLD = "31", "33", "35", "32", "2", "1"
TONES = {
    "fail": RED,
    "warning": YELLOW,
    "unknown": MAGENTA,
    "unreached": MAGENTA,
    "info": DIM,
    "alert": BOLD,
    "ok": GREEN,
    "waived": DIM,
    "quiet": DIM,
    "strong": BOLD,
}
"""The colour of each tone of a cell or a paragraph."""


def sgr(text: str, code: str) -> str:
    """Text in a colour, or a weight, of a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m"
