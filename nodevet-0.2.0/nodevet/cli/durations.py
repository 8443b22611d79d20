"""Times on the command line. Apart from the other options, which cost more to import."""

import math
from typing import Any

import click

from nodevet.base.durations import EXAMPLES, duration_text, seconds_of

MOST = 7 * 86400.0  # seconds


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A length of time in seconds, typed as `90s`, `15m`, `24h`, `2d`.

    A number without a unit is seconds, unless not `bare`; `none` is no limit, if `endless`. Far
    above `MOST` poll(2) cannot wait.
    """

    name = "duration"

    def __init__(
        self,
        least: float = 0.0,
        most: float = MOST,
        *,
        bare: bool = True,
        endless: bool = False,
    ) -> None:
        self.least = least
        self.most = most
        self.bare = bare
        self.endless = endless

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if self.endless and value == "none":
            return math.inf
        seconds = seconds_of(str(value), bare=self.bare)
        if seconds is None:
            endless = ", none" if self.endless else ""
            unit = " without a unit" if seconds_of(str(value), bare=True) is not None else ""
            self.fail(
                f"invalid duration {value!r}{unit} (examples: {EXAMPLES}{endless})", param, ctx
            )
        if seconds < self.least:
            self.fail(f"{value} is less than {duration_text(self.least)}", param, ctx)
        if seconds > self.most:
            self.fail(f"{value} is more than {duration_text(self.most)}", param, ctx)
        return seconds
