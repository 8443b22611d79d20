"""Amounts as people write them, and what is refused by name."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevet.checking.feeding import units


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (units.size, "500 kB", 500e3),
        (units.size, "500kB", 500e3),
        (units.size, "64 KiB", 65536),
        (units.size, "1.5 GiB", 1.5 * 2**30),
        (units.size, "1 TB", 1e12),
        (units.rate, "2 GB/s", 2e9),
        (units.rate, "2 GiB/s", 2 * 2.0**30),
        (units.rate, "100 Gbit/s", 12.5e9),
        (units.rate, "100 Gb/s", 12.5e9),
        (units.rate, "100 Gbps", 12.5e9),
        (units.seconds, "5.86 ms", 0.00586),
        (units.seconds, "26.28 us", 26.28e-6),
        (units.seconds, "26.28 µs", 26.28e-6),
        (units.per_second, "2500 samples/s", 2500),
        (units.per_second, "2.5 k samples/s", 2500),
        (units.share, "40 %", 0.4),
        (units.share, "0%", 0),
    ],
)
def test_amounts(reader, text, value) -> None:
    assert reader(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "value"), [("250 MB/s", 500), ("500 samples/s", 500), ("2 ms", 500)]
)
def test_a_worker_rate_is_read_in_bytes_samples_or_seconds(text, value) -> None:
    assert units.samples(text, 500e3) == pytest.approx(value)


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (units.size, "500", "500 has no unit; write a size such as 500 kB or 64 KiB"),
        (units.size, "500 KB", "KB is 1,000 to some and 1,024 to others; write kB or KiB"),
        (units.size, "500 kb", "kb is not a known unit; did you mean kB?"),
        (units.size, "2 GB/s", "GB/s is not a known unit; did you mean GB?"),
        (units.size, "many", "must be a size such as 500 kB or 64 KiB, not many"),
        (units.size, "0 B", "must be more than 0, not 0 B"),
        (units.size, "-3 kB", "must be a size such as 500 kB or 64 KiB, not -3 kB"),
        (units.rate, "250 MB", "MB is not a known unit; write MB/s"),
        (units.rate, "2 KB/s", "KB/s is 1,000 to some and 1,024 to others; write kB/s or KiB/s"),
        (units.seconds, "5 msec", "msec is not a known unit; did you mean ms?"),
        (units.share, "140 %", "must be at most 100 %, not 140 %"),
        (units.rate, "2 Gbit", "Gbit is not a known unit; write Gbit/s"),
    ],
)  # fmt: skip
def test_an_invalid_amount_is_refused_by_name(reader, text, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        reader(text)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    for reader in (units.size, units.rate, units.seconds, units.share, units.per_second):
        assert _said(reader, text).isprintable()


def _said(reader: Callable[[str], float], text: str) -> str:
    try:
        return f"{reader(text):g}"
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("generation", "lanes", "gigabytes"),
    [(1, 16, 4.0), (2, 16, 8.0), (3, 16, 15.75), (4, 16, 31.51), (5, 16, 63.02), (6, 16, 118.0)],
)
def test_a_link_carries_what_its_encoding_leaves(generation, lanes, gigabytes) -> None:
    assert units.link_rate(generation, lanes) / 1e9 == pytest.approx(gigabytes, abs=0.005)
    assert units.link_rate(generation, 8) * 2 == units.link_rate(generation, 16)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (1e3, "1 kB"), (500e3, "500 kB"),
     (10.9e9, "10.9 GB"), (5e18, "5000 PB")],
)  # fmt: skip
def test_amounts_are_written_with_decimal_prefixes(amount, text) -> None:
    assert units.amount_text(amount, "B") == text
