"""Answers to a baseline's questions about a text, which stays on the node."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record


class TextAnswer(Record, frozen=True, kw_only=True):
    """Whether a text equals one, contains one or fits a pattern."""

    kind: Text  # equals, contains, pattern
    text: Text  # as it was asked
    found: bool | None = None


TextAnswers = Annotated[tuple[TextAnswer, ...], bounds.QUESTIONS]


def by_question(matches: Iterable[TextAnswer] | None) -> Mapping[tuple[str, str], TextAnswer]:
    """Each answer by its kind and text."""
    return {(match.kind, match.text): match for match in matches or ()}
