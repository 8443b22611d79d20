"""Numbered labels and numbers as ranges. Pure."""

from collections.abc import Iterable

DIGITS = 9  # of a number that is shown in a range


def in_ranges(labels: Iterable[str]) -> str:
    """Labels of subjects, `GPU 0-3,7, cpufreq 0-31`: numbers of one noun as ranges."""
    numbers: dict[str, set[int]] = {}
    parts: dict[tuple[str, bool], str] = {}
    for label in labels:
        noun, _, number = label.rpartition(" ")
        if noun and is_number(number):
            numbers.setdefault(noun, set()).add(int(number))
            parts[noun, True] = f"{noun} {ranges_text(sorted(numbers[noun]))}"
        else:
            parts[label, False] = label
    return ", ".join(parts.values())


def is_number(text: str) -> bool:
    """Whether a text is a number short enough for a range."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS


def ranges_text(numbers: list[int]) -> str:
    """`0-3,7` of sorted numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
