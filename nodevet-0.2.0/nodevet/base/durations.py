"""Lengths of time: as people write them, `90s`, `15m`, `24h`, `2d`, and as reports say them."""

import math
import re

EXAMPLES = "90s, 15m, 24h, 2d"
SIZES = {"s": 1, "m": 60, "h": 3600, "d": 86400}
STEPS = (("d", 86400, 3600, "h"), ("h", 3600, 60, "min"), ("min", 60, 1, "s"))


def seconds_of(text: str, *, bare: bool = False) -> float | None:
    """The seconds of `90s`, `1.5h`, `2d`; None for anything else. A `bare` number is seconds.

    >>> seconds_of("15m"), seconds_of("90"), seconds_of("90", bare=True)
    (900.0, None, 90.0)
    """
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text)
    if match:
        return float(match[1]) * SIZES[match[2]]
    if not bare:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def duration_text(seconds: float) -> str:
    """A duration as people type it, in the largest unit that divides it.

    >>> written(120), written(90), written(604800), written(0.5)
    ('2m', '90s', '7d', '0.5s')
    """
    if seconds == math.inf:
        return "none"
    unit = next((u for u in "dhm" if seconds and seconds % SIZES[u] == 0), "s")
    return f"{seconds / SIZES[unit]:g}{unit}"


def elapsed(seconds: float) -> str:
    """A duration as reports show it, in its two largest units.

    >>> elapsed(4.13), elapsed(725), elapsed(7380), elapsed(98 * 3600), elapsed(7 * 86400)
    ('4.1 s', '12 min 5 s', '2 h 3 min', '4 d 2 h', '7 d')
    """
    if round(seconds, 1) < 60:
        return f"{max(0.0, round(seconds, 1)):g} s"
    total = round(seconds)
    unit, size, smaller, below = next(step for step in STEPS if total >= step[1])
    remainder = total % size // smaller
    return f"{total // size:,} {unit}" + (f" {remainder} {below}" if remainder else "")


def coarse(seconds: float) -> str:
    """A duration in whole units, at least two of them.

    >>> coarse(40), coarse(5400), coarse(108000), coarse(-1)
    ('40 s', '90 min', '30 h', '0 s')
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * size:
            return f"{int(seconds // size):,} {unit}"
    return f"{max(0, int(seconds))} s"
