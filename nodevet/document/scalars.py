"""The value of an unquoted word of YAML, and the words on which YAML readers disagree.

One YAML reader takes an unquoted word for a number, another for text. nodevet reads words on which
they agree, and refuses others with a message that says what to write instead.
"""

import re

from nodevet.document.tree import Plain

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
BOOLEANS = {"true": True, "false": False}
BOOLEAN_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false"))
MOST_DIGITS = 18
NUMERIC = "+-.0123456789"  # first characters of numbers

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+")
LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?")
BASE = re.compile(r"[-+]?0[xXoObB][0-9a-fA-F_]+")
UNDERSCORES = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?")
SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
HALF_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.)")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)")


class TrapError(Exception):
    """A word on which YAML readers disagree: the reason, and what to write instead."""

    def __init__(self, message: str, advice: str) -> None:
        self.message = message
        self.advice = advice
        super().__init__(f"{message}; {advice}")


def resolve(word: str) -> Plain:
    """The value of an unquoted scalar: null, true, false, a decimal number, or text.

    >>> resolve("8"), resolve("1.5"), resolve("true"), resolve("~"), resolve("550.90.07")
    (8, 1.5, True, None, '550.90.07')

    Raises TrapError for a word that is ambiguous.
    """
    if word in NULLS:
        return None
    if word in BOOLEANS:
        return BOOLEANS[word]
    if word.lower() in BOOLEAN_WORDS:
        boolean = "true" if word.lower() in ("y", "yes", "on", "true") else "false"
        raise TrapError(
            f"{word} without quotes is a boolean to some YAML readers and text to others",
            f'write {boolean}, or "{word}" if text is meant',
        )
    if word[0] not in NUMERIC:
        return word
    _refuse_odd_numbers(word)
    if INTEGER.fullmatch(word):
        return int(word)
    return float(word) if DECIMAL.fullmatch(word) else word


def _refuse_odd_numbers(word: str) -> None:
    if LEADING_ZERO.fullmatch(word):
        raise TrapError(
            f"{word} without quotes is an octal number to some YAML readers",
            f'write {_without_zeros(word)}, or "{word}" if text is meant',
        )
    if SEXAGESIMAL.fullmatch(word):
        raise TrapError(
            f"{word} without quotes is a base-60 number to some YAML readers",
            f'write "{word}"',
        )
    for form, kind in (
        (BASE, "a hexadecimal, octal or binary number"),
        (UNDERSCORES, "a number with underscores"),
        (EXPONENT, "a number with an exponent"),
        (HALF_DECIMAL, "a number without digits on both sides of the point"),
    ):
        if form.fullmatch(word):
            raise TrapError(
                f"{word} without quotes is {kind} to some YAML readers and text to others",
                f'write a plain decimal number, or "{word}" if text is meant',
            )
    if NOT_FINITE.fullmatch(word):
        raise TrapError(
            f"{word} is not a number that can be compared", "write a plain decimal number"
        )
    if len(word) > MOST_DIGITS + 2 and (INTEGER.fullmatch(word) or DECIMAL.fullmatch(word)):
        raise TrapError(
            f"a number of more than {MOST_DIGITS} digits",
            "write a smaller one, or quotes around it if text is meant",
        )


def _without_zeros(word: str) -> str:
    digits = word.lstrip("+-0_")
    return digits if digits[:1].isdigit() else f"0{digits}"
