"""The sent run as a sheet. Pure."""

from nodevet.base.printable import plain
from nodevet.otel.use import SentRun
from nodevet.sheet.model import Sheet
from nodevet.sheet.text import count


def sent_sheet(sent: SentRun) -> Sheet:
    """One line with the numbers of spans and findings."""
    numbers = (count(sent.spans, "span"), count(sent.findings, "finding"))
    return Sheet(
        title=f"sent {' and '.join(numbers)} of run {plain(sent.run)}", kind="otel", blocks=()
    )
