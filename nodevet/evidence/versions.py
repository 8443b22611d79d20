"""Compares the versions of packages as dpkg and rpm do, which is not the order of numbers or texts.

Parts that a baseline leaves out are not compared: `550.90.07` matches every release of it, under
every epoch; `550.90.07-1` matches one release.
"""

import re
from itertools import zip_longest
from typing import NamedTuple

PART = re.compile(r"[0-9]+|[A-Za-z]+|~|\^")


class PackageVersion(NamedTuple):
    """`1:550.90.07-1`: epoch, upstream version, release. None: not given."""

    epoch: str | None
    upstream: str
    release: str | None


def version_of(text: str) -> PackageVersion:
    """
    >>> version_of("1:550.90.07-1")
    PackageVersion(epoch='1', upstream='550.90.07', release='1')
    """
    epoch, colon, rest = text.partition(":")
    if not colon or not epoch.isdecimal():
        epoch, rest = "", text
    upstream, dash, release = rest.rpartition("-")
    if not dash:
        upstream, release = rest, ""
    return PackageVersion(epoch or None, upstream, release if dash else None)


def order(actual: str, reference: str, manager: str) -> int:
    """Below zero if `actual` is older than `reference`, zero if they are the same, above if newer.

    >>> order("2.21.5-1+cuda12.4", "2.9", "dpkg") > 0, order("1:550-2", "550", "rpm")
    (True, 0)
    """
    ours, theirs = version_of(actual), version_of(reference)
    compare = dpkg_order if manager == "dpkg" else rpm_order
    if theirs.epoch is not None:
        epochs = int(ours.epoch or 0) - int(theirs.epoch)
        if epochs:
            return epochs
    difference = compare(ours.upstream, theirs.upstream)
    if difference or theirs.release is None:
        return difference
    return compare(ours.release or "", theirs.release)


def begins(actual: str, prefix: str) -> bool:
    """Whether a version begins with the prefix; its epoch counts only if the prefix has one.

    >>> begins("1:2.21.5-1", "2.21."), begins("1:2.21.5-1", "1:2.2"), begins("2.211-1", "2.21.")
    (True, True, False)
    """
    bare = actual if ":" in prefix else actual.partition(":")[2] or actual
    return bare.startswith(prefix)


def is_version(version: str, begins: str) -> bool:
    """Whether a version begins with these whole parts.

    >>> is_version("2.4.1+cu124", "2.4"), is_version("2.40.1", "2.4")
    (True, False)
    """
    return version.startswith(begins) and not version[len(begins) :][:1].isdigit()


def dpkg_order(ours: str, theirs: str) -> int:
    """deb-version(7): text and numbers by turns; `~` is before everything, even the end.

    >>> dpkg_order("1.0~rc1", "1.0") < 0 < dpkg_order("1.10", "1.9"), dpkg_order("1.0", "1.00")
    (True, 0)
    """
    parts = (_dpkg_parts(ours), _dpkg_parts(theirs))
    for (our_text, our_number), (their_text, their_number) in zip_longest(
        *parts, fillvalue=("", 0)
    ):
        our_parts = [_weight(letter) for letter in our_text]
        their_parts = [_weight(letter) for letter in their_text]
        for left, right in zip_longest(our_parts, their_parts, fillvalue=0):
            if left != right:
                return left - right
        if our_number != their_number:
            return 1 if our_number > their_number else -1
    return 0


def _dpkg_parts(text: str) -> list[tuple[str, int]]:
    return [
        (letters, int(digits or 0))
        for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text)
        if letters or digits
    ]


def _weight(letter: str) -> int:
    """The rank of a character; the order is `~`, the end, letters, all others."""
    if letter == "~":
        return -1
    return ord(letter) if letter.isascii() and letter.isalpha() else ord(letter) + 256


def rpm_order(ours: str, theirs: str) -> int:
    """rpmvercmp of rpm: words of digits or letters; a number is above a word, `~` below the end,
    `^` above the end and below all else.

    >>> rpm_order("1.0~rc1", "1.0") < 0 < rpm_order("1.0^git1", "1.0"), rpm_order("1.0", "1_0")
    (True, 0)
    """
    for left, right in zip_longest(PART.findall(ours), PART.findall(theirs), fillvalue=""):
        if left == right:
            continue
        ranks = (_rank(left), _rank(right))
        if ranks[0] != ranks[1]:
            return ranks[0] - ranks[1]
        if left.isdecimal():
            if int(left) != int(right):
                return 1 if int(left) > int(right) else -1
        elif left != right:
            return 1 if left > right else -1
    return 0


def _rank(part: str) -> int:
    if part in ("~", "", "^"):
        return ("~", "", "^").index(part)
    return 4 if part.isdecimal() else 3
