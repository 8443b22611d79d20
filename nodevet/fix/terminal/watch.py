"""How a run of fixes goes on, on standard error."""

import time

from nodevet.cli.display import Display, display_of
from nodevet.cli.live import EVERY, Live
from nodevet.fix.events import Event
from nodevet.fix.listener import FixListener
from nodevet.fix.terminal.board import FixBoard


class FixWatcher(FixListener):
    """Shows, between `with` and its end, what a run tells."""

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

    def heard(self, event: Event) -> None:
        self._live.tell(event)
