"""The order of versions, held against dpkg's own, and rpm's own."""

import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevet.evidence.versions import begins, dpkg_order, order, rpm_order

SIGNS = {-1: "lt", 0: "eq", 1: "gt"}
NUMBERS = st.text(alphabet="019ab.+~", min_size=1, max_size=7).map(lambda text: f"1{text}")


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@settings(max_examples=150, deadline=None)
@given(NUMBERS, NUMBERS)
def test_the_order_is_that_of_dpkg(one: str, other: str) -> None:
    found = sign(dpkg_order(one, other))
    command = ["dpkg", "--compare-versions", one, SIGNS[found], other]
    assert subprocess.run(command, check=False).returncode == 0, (one, SIGNS[found], other)


RPM_ORDER = [  # oldest first
    "1.0~rc1", "1.0~rc1^git1", "1.0", "1.0^git1", "1.0^git2", "1.0a", "1.0.a", "1.0.1", "1.0.2",
    "1.0.10", "1.1", "2", "10", "20240101",
]  # fmt: skip
TRICKY = [
    *RPM_ORDER, "~", "^", "~~", "^^", "1.0^", "1.0~", "1.0^~", "1.0~^", "a", "1a", "a1", "1.0a1",
    "010", "10a", "fc4", "fc.4", "4fc", "5_16.1", "..", "1..0", "_", "é", "1é2", "12", "1A", "0",
    "00", "el9_4", "el9", "9999999999999999999999", "427.13.1.el9_4",
]  # fmt: skip


def test_the_order_is_that_of_rpm() -> None:
    for at, one in enumerate(RPM_ORDER):
        for after, other in enumerate(RPM_ORDER):
            if {one, other} != {"1.0a", "1.0.a"}:  # what is between the words is of no account
                assert sign(rpm_order(one, other)) == sign(at - after), (one, other)
    assert rpm_order("1.0a", "1.0.a") == rpm_order("5.16.1.3", "5_16.1-3") == 0
    assert rpm_order("010", "10") == 0
    assert rpm_order("fc4", "fc.4") == 0 < rpm_order("4", "fc")


def by_rpm(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """How rpm itself orders them, 500 in one run: of more at once it aborts."""
    found = []
    for start in range(0, len(pairs), 500):
        lines = " ".join(f"{one} {other}" for one, other in pairs[start : start + 500])
        each = f"for one, other in string.gmatch([=[{lines}]=], '(%S+) (%S+)') do"
        script = f"%{{lua:{each} print(rpm.vercmp(one, other)) end}}"
        done = subprocess.run(["rpm", "--eval", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:500]
        found += [int(word) for word in re.findall(r"-?[01]", done.stdout)]
    return found


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed")
def test_versions_are_in_the_order_of_the_real_rpm() -> None:
    draw = random.Random(7)
    drawn = ["".join(draw.choices("0129ab.+~^_é", k=draw.randint(1, 7))) for _ in range(1500)]
    pairs = [*product(TRICKY, TRICKY), *pairwise(drawn)]
    told = by_rpm(pairs)
    assert len(told) == len(pairs)
    differing = [
        (pair, found)
        for pair, found in zip(pairs, told, strict=True)
        if sign(rpm_order(*pair)) != found
    ]
    assert differing == []


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed")
def test_epochs_and_releases_are_in_the_order_of_the_real_rpm() -> None:
    whole = [
        f"{epoch}:{version}-{release}"
        for epoch, version, release in product(
            ("0", "1", "10"), ("550.90.07", "550.100", "550~rc1"), ("1", "1.el9", "1^git", "10")
        )
    ]
    pairs = list(product(whole, whole))
    assert [sign(order(one, other, "rpm")) for one, other in pairs] == by_rpm(pairs)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_both_version_orders_are_total_orders(one: str, two: str, three: str) -> None:
    for compare in (dpkg_order, rpm_order):
        assert sign(compare(one, two)) == -sign(compare(two, one))
        assert compare(one, one) == 0
        if compare(one, two) <= 0 and compare(two, three) <= 0:
            assert compare(one, three) <= 0


@pytest.mark.parametrize(
    ("actual", "wanted", "manager", "found"),
    [
        ("1:550.90.07-1", "550.90.07", "dpkg", 0),
        ("1:550.90.07-1", "550.90.07-2", "dpkg", -1),
        ("1:550.90.07-1", "2:550", "dpkg", -1),
        ("550.90.07-1", "0:550.90.07", "dpkg", 0),
        ("550.90.07-0ubuntu1", "550.90.07-0ubuntu0.22.04.1", "dpkg", 1),
        ("5.14.0-427.13.1.el9_4", "5.14.0-427", "rpm", 1),
        ("5.14.0-427.13.1.el9_4", "5.14.0-503", "rpm", -1),
        ("3:550.90.07-1.el9", "550.100", "rpm", -1),
    ],
)
def test_what_is_omitted_is_not_compared(
    actual: str, wanted: str, manager: str, found: int
) -> None:
    assert sign(order(actual, wanted, manager)) == found


def test_a_version_prefix_matches() -> None:
    assert begins("5:26.1.4-1", "26.1.") and begins("5:26.1.4-1", "5:26")
    assert not begins("5:26.1.4-1", "5") and not begins("26.10-1", "26.1.")
