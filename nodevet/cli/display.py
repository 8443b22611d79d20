"""Colour, width and amount of output, decided once, here.

A command takes `@display_options()` and gets one more argument, `display`. Every `--help` imports
this, so it must be cheap.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import IO, Any, NamedTuple

CHOICES = ("auto", "always", "never")
QUIET = "Show only findings that count for the exit code, and the totals: no waived rows, no "
"advice, no notes."
"""The help of `--quiet` where a table of checks is shown."""
ADVICE = "In a table, show the full advice below each kind of difference."
"""The help of `--advice`, there."""


class Screen(NamedTuple):
    """Colour and width of a stream."""

    colour: bool = False
    width: int | None = None  # columns; None: lines may be as long as they need to be


class Display(NamedTuple):
    """How a command shows its output."""

    out: Screen = Screen()  # standard output
    err: Screen = Screen()  # standard error
    quiet: bool = False
    advice: bool = False

    @property
    def colour(self) -> bool:
        return self.out.colour

    @property
    def width(self) -> int | None:
        return self.out.width


def display_options(quiet: str = "", advice: str = "") -> Callable[[Any], Any]:
    """`--color`, and `--quiet` and `--advice` if there is help for them. The command gets them as
    one argument, `display`."""
    import click  # what only shows needs it not

    def decorate(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def command(
            *args: Any, color: str, quiet: bool = False, advice: bool = False, **rest: Any
        ) -> Any:
            context = click.get_current_context(silent=True)
            if context:
                context.color = True  # what is coloured is decided here: click strips nothing
            return function(*args, display=display_of(color, quiet=quiet, advice=advice), **rest)

        decorated: Any = click.option(
            "--color",
            type=click.Choice(CHOICES),
            default="auto",
            show_default=True,
            help="When to use colour; auto: on a terminal, unless NO_COLOR is set, and if "
            "FORCE_COLOR is set.",
        )(command)
        if quiet:
            decorated = click.option("-q", "--quiet", is_flag=True, help=quiet)(decorated)
        if advice:
            decorated = click.option("--advice", is_flag=True, help=advice)(decorated)
        return decorated

    return decorate


def display_of(color: str = "auto", *, quiet: bool = False, advice: bool = False) -> Display:
    """The display of this process."""
    out, err = (screen(stream, color, os.environ) for stream in (sys.stdout, sys.stderr))
    return Display(out=out, err=err, quiet=quiet, advice=advice)


def screen(stream: IO[str], color: str, environment: Mapping[str, str]) -> Screen:
    """The screen of this stream. A pipe has no width, and no colour unless the user asks for it."""
    terminal = stream.isatty()
    chosen = {"always": True, "never": False}.get(color)
    return Screen(
        colour=_is_colour_wanted(terminal, environment) if chosen is None else chosen,
        width=(_columns(environment) or _width_of(stream)) if terminal else None,
    )


def _is_colour_wanted(terminal: bool, environment: Mapping[str, str]) -> bool:
    """no-color.org and bixense.com/clicolors: NO_COLOR wins."""
    if environment.get("NO_COLOR"):
        return False
    if any(
        environment.get(name, "0") not in {"", "0"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")
    ):
        return True
    return terminal and environment.get("TERM") != "dumb"


def _columns(environment: Mapping[str, str]) -> int | None:
    text = environment.get("COLUMNS", "")[:9]
    return (int(text) or None) if text.isascii() and text.isdecimal() else None


def _width_of(stream: IO[str]) -> int:
    """The width of a terminal; 80 columns if it does not know, like a serial console."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
