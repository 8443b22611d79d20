"""What a run of fixes tells while it goes on."""

from nodevet.fix.events import Event


class FixListener:
    """Of hosts that fixes are applied to, or rolled back on."""

    def note(self, text: str) -> None:
        """Something that whoever started the run should know."""

    def note_in_signal(self, text: str) -> None:
        """As `note`, called from the handler of a signal."""

    def heard(self, event: Event) -> None:
        """What happens on a host, or to the run; from several threads, and it returns at once."""
