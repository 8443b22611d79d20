"""Output of a Nagios plug-in: a status line with performance data, then details."""

from collections.abc import Iterable

from nodevet.base.printable import plain
from nodevet.sheet.text import count

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
ROOM = 7500  # bytes; Nagios reads no more than 8 KiB


def page(code: int, headline: str, performance: Iterable[str], details: Iterable[str]) -> str:
    """The word of `code`, the headline and performance data, then as many details as Nagios
    reads."""
    head = f"NODEVET {WORDS[code]} - {_harmless(headline)}"
    text = f"{head} | {' '.join(performance)}\n"
    rest = [_harmless(line) for line in details]
    for place, line in enumerate(rest):
        if len((text + line).encode()) > ROOM:
            return text + f"and {count(len(rest) - place, 'line')} more\n"
        text += line + "\n"
    return text


def _harmless(text: str) -> str:
    """One line without `|`, which begins performance data."""
    return plain(text).replace("|", "\\x7c")
