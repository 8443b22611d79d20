"""A saved answer of `nodevet feed`, for `nodevet report`."""

from nodevet.document.kinds import DocumentKind
from nodevet.feed.answer import FEED_SCHEMA, FeedAnswer
from nodevet.feed.sheet import feed_sheet
from nodevet.sheet.model import Sheet
from nodevet.vet.use.earlier import SavedKind, of_schema


def parse_feed(text: bytes) -> FeedAnswer:
    """An answer from its JSON form. Raises ReportError."""
    return of_schema(text, FEED_SCHEMA, FeedAnswer, "output of feed")


def _sheet(answer: FeedAnswer, everything: bool) -> Sheet:
    return feed_sheet(answer, plot=everything)


SAVED = SavedKind(DocumentKind.FEED, "output of feed", "feed", parse_feed, _sheet, dated=False)
