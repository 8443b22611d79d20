"""Repeat a diagnosis until an interrupt: redraw it in place on a terminal, otherwise print a block
for each round."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodevet.cli.display import Display
from nodevet.cli.speech import tell
from nodevet.diagnose.board import board
from nodevet.diagnose.model import Diagnosis
from nodevet.diagnose.phrases import closing

if TYPE_CHECKING:
    from rich.live import Live


def watch_rounds(look: Callable[[], Diagnosis], display: Display, apart: float) -> int:
    """The exit code of the last whole round. Rounds begin at least `apart` seconds after one
    another."""
    last_code: int | None = None
    screen = RoundScreen(display)
    try:
        with screen:
            while True:
                began = time.monotonic()
                diagnosis = look()
                if diagnosis.interrupted:
                    return diagnosis.exit_code if last_code is None else last_code
                last_code = diagnosis.exit_code
                if not screen.show(diagnosis):
                    return last_code
                time.sleep(max(0.0, began + apart - time.monotonic()))
    except KeyboardInterrupt:
        return 3 if last_code is None else last_code


class RoundScreen:
    """Shows one round after the other, between `with` and its end."""

    def __init__(self, display: Display) -> None:
        self._display = display
        terminal = os.environ.get("TERM") not in (None, "", "dumb")
        self._in_place = display.width is not None and terminal
        self._live: Live | None = None
        self._rounds = 0

    def __enter__(self) -> "RoundScreen":
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, diagnosis: Diagnosis) -> bool:
        """Whether anybody can see it."""
        self._rounds += 1
        when = diagnosis.started.partition("T")[2][:8]
        head = f"round {self._rounds} at {when} · {closing(diagnosis)}"
        if self._in_place:
            return self._redraw(diagnosis, head)
        lines = board(diagnosis, colour=self._display.colour, width=self._display.width)
        return tell("\n".join([head, *lines, ""]))

    def _redraw(self, diagnosis: Diagnosis, head: str) -> bool:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        colour = self._display.colour
        try:
            if self._live is None:
                console = Console(no_color=not colour, highlight=False, markup=False, emoji=False)
                live = Live(
                    console=console,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                live.start()
                self._live = live  # only now: rich cannot stop what did not start
                console.show_cursor(True)  # a process that is killed would leave none
            size = self._live.console.size
            lines = board(diagnosis, colour=colour, width=size.width, height=size.height - 3)
            text_shown = Text.from_ansi("\n".join([head, *lines, "Ctrl-C ends"]))
            text_shown.no_wrap, text_shown.overflow = True, "ellipsis"
            self._live.update(text_shown, refresh=True)
        except OSError:
            return False
        return True
