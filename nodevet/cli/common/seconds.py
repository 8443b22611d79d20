"""Times on the command line. Apart from the other options, which cost more to import."""

import math
import re
from datetime import timedelta
from typing import Any

import click


class SecondsParam(click.FloatRange):
    """A finite number of seconds."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a valid number of seconds.", param, ctx)
        return seconds


_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta | None:
    """The time of `90m`, `24h` or `2d`; None for anything else."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


def longest(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option that takes a time such as 24h, in seconds; `none` is no limit."""
    if value is None:
        return None
    if value == "none":
        return math.inf
    time = duration(value)
    if not time:
        text = f"invalid duration {value!r} (examples: 90m, 24h, 2d, none)"
        raise click.BadParameter(text, ctx, param)
    return time.total_seconds()
