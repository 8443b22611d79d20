"""A listener that says on standard error what a run of fixes notes."""

from nodevet.cli.speech import say, say_at_once
from nodevet.fix.listener import FixListener


class Speaker(FixListener):
    """Says on standard error what whoever started a command should know."""

    def note(self, text: str) -> None:
        say(text)

    def note_in_signal(self, text: str) -> None:
        say_at_once(text)
