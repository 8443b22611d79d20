"""Times on the command line. Apart from the other options, which cost more to import."""

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """A time that passes: neither endless nor "nan"."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds
