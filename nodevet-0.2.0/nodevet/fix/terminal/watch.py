"""Shows the progress of a run of fixes on standard error."""

import time

from nodevet.cli.display import Display, display_of
from nodevet.cli.live import EVERY, Live
from nodevet.fix.events import Event, FixListener
from nodevet.fix.terminal.board import FixBoard


class FixWatcher(FixListener):
    """A context manager that shows the events of a run."""

    def __init__(self, display: Display | None = None, every: float = EVERY) -> None:
        self._live = Live(FixBoard(time.monotonic()), display or display_of(), every)

    def __enter__(self) -> "FixWatcher":
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    def note(self, text: str) -> None:
        self._live.tell(text)

    def note_in_signal(self, text: str) -> None:
        self._live.tell_in_signal(text)

    def on_event(self, event: Event) -> None:
        self._live.tell(event)
