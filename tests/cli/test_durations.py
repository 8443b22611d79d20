"""Times on the command line: one way to write them, and one message."""

import math

import click
import pytest

from nodevet.base.durations import duration_text, elapsed, seconds_of
from nodevet.cli.durations import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("24h", 86400), ("2d", 172800), ("1.5h", 5400), ("0s", 0)],
)
def test_a_time_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["600", "0.5", "1e3"])
def test_a_bare_number_is_seconds_unless_a_unit_is_asked_for(text: str) -> None:
    assert Duration().convert(text, None, None) == float(text)
    with pytest.raises(click.BadParameter, match="invalid duration"):
        Duration(bare=False).convert(text, None, None)


@pytest.mark.parametrize("text", ["", "x", "h", "15 m", "15M", "1h30m", "nan", "inf", "-5s", "²s"])
def test_an_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Duration().convert(text, None, None)
    assert caught.value.message == (f"invalid duration {text!r} (examples: 90s, 15m, 24h, 2d)")


@pytest.mark.parametrize(
    ("text", "said"), [("59s", "59s is less than 1m"), ("31d", "31d is more than 30d")]
)
def test_limits_are_reported_as_they_are_typed(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Duration(60, 30 * 86400).convert(text, None, None)
    assert caught.value.message == said


def test_none_means_no_limit_only_if_the_option_allows_it() -> None:
    assert Duration(endless=True).convert("none", None, None) == math.inf
    with pytest.raises(click.BadParameter, match="invalid duration 'none'"):
        Duration().convert("none", None, None)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 90.0, 900.0, 5400.0, 86400.0, 129600.0])
def test_a_written_duration_reads_back_as_the_same_seconds(seconds: float) -> None:
    assert seconds_of(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"),
        (0.04, "0 s"),
        (4.13, "4.1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (725.2, "12 min 5 s"),
        (3599.6, "1 h"),
        (7380.0, "2 h 3 min"),
        (98 * 3600.0, "4 d 2 h"),
        (12000 * 86400.0, "12,000 d"),
    ],
)
def test_elapsed_time_is_printed_in_two_units_at_most(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text
