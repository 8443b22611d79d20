"""A listener that prints the notes of a run of fixes on standard error."""

from nodevet.cli.speech import say, say_at_once
from nodevet.fix.events import FixListener


class Speaker(FixListener):
    """Prints notes on standard error."""

    def note(self, text: str) -> None:
        say(text)

    def note_in_signal(self, text: str) -> None:
        say_at_once(text)
