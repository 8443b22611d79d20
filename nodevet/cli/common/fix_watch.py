"""How a run of fixes goes on, on standard error."""

import time

from nodevet.cli.common.display import Display, display_of
from nodevet.cli.common.fix_board import FixBoard
from nodevet.cli.common.live import EVERY, Live
from nodevet.remedy.events import Event
from nodevet.run.listener import FixListener


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
