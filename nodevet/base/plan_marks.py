"""The mark by which a drain hook says whom a node is drained for: `7f3a91c2-0c51b9e4`, the id of a
plan, and the run of it; the id alone if a person drained the node by hand."""

import re

PLAN_ID = r"[A-Za-z0-9]{8,16}"
MARK = rf"{PLAN_ID}(?:-[0-9a-f]{{8}})?"


def is_mark(text: str) -> bool:
    """Whether a text is the id of a plan, or the mark of a run of one."""
    return re.fullmatch(MARK, text) is not None


def mark_of(plan: str, run: str) -> str:
    """The mark of a run; the plan's id without a run."""
    return f"{plan}-{run}" if run else plan


def is_of(mark: str, given: str) -> bool:
    """Whether a mark is the given one, or of a run of the given plan.

    >>> is_of("7f3a91c2-0c51b9e4", "7f3a91c2"), is_of("7f3a91c2-0c51b9e4", "7f3a91c2-11111111")
    (True, False)
    """
    return given in (mark, mark.partition("-")[0])
