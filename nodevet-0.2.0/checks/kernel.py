"""The node runs an expected kernel.

**Why it matters.** An unattended upgrade or a node from another image runs a kernel for which the
NVIDIA driver, the OFED modules or the file system client were not built or tested; nodes of one job
then behave differently.

**Read from** /proc/sys/kernel/osrelease, the text that `uname -r` prints.

**Verdicts.** `one_of` is one release or a list; `*` stands for any text: `5.15.0-*-generic`.
`minimum` compares number by number: 5.15.0-105-generic is above 5.15.0-94. The check does not look
for a newer kernel that is installed and waits for a reboot.

**To fix it** install the kernel and its modules, make it the default (`grub-set-default`, `grubby
--set-default`) and reboot; hold the package (`apt-mark hold`, `dnf versionlock`) so that an upgrade
does not replace it.
"""

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.one_value import itself, node_value
from nodevet.evidence.host import HostInfo
from nodevet.model import Area, CheckParams, Finding, fail, ok, unknown

NUMBERS = re.compile(r"[0-9]{1,9}(?:[.-][0-9]{1,9})*")
Release = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}([.-][0-9]{1,9})*$",
        title="the numbers of a release, in quotes, such as '5.15' or '5.15.0-94'",
    ),
]
INSTALL = (
    "install the expected kernel with its modules, make it the default and reboot; hold its "
    "package so that an upgrade does not replace it"
)


class Params(CheckParams):
    """`kernel: 5.15.0-105-generic` or `kernel: {one_of: [5.15.0-*-generic, 6.8.0-*-nvidia]}` or
    `kernel: {minimum: "5.15.0-94"}`"""

    bare: ClassVar[str] = "one_of"

    one_of: Words | None = None
    """A release as `uname -r` prints it, or a list of releases; `*` stands for any text."""
    minimum: Release | None = None
    """The oldest release, in quotes: "5.15" or "5.15.0-94"."""


def judge(params: Params, actual: str) -> Finding:
    if params.one_of is not None and not matches(actual, params.one_of):
        return fail(expected=words_text(params.one_of), actual=actual, advice=INSTALL)
    expected = (
        words_text(params.one_of) if params.one_of is not None else f"at least {params.minimum}"
    )
    if params.minimum is not None:
        numbers = numbers_of(actual)
        if not numbers:
            return unknown(actual=actual, why="not a kernel version")
        if not is_newer(numbers, numbers_of(params.minimum)):
            return fail(expected=f"at least {params.minimum}", actual=actual, advice=INSTALL)
    return ok(expected=expected, actual=actual)


def numbers_of(release: str) -> tuple[int, ...]:
    """The leading numbers of the release.

    >>> numbers_of("5.14.0-427.13.1.el9_4.x86_64")
    (5, 14, 0, 427, 13, 1)
    """
    match = NUMBERS.match(release)
    return tuple(map(int, re.split(r"[.-]", match[0]))) if match else ()


def is_newer(release: tuple[int, ...], minimum: tuple[int, ...]) -> bool:
    """Whether `release` is at least `minimum`; missing numbers count as 0.

    >>> is_newer((6, 9), (6, 9, 0)), is_newer((5, 15, 0, 94), (5, 15, 0, 105)) (True, False)
    """
    return release + (0,) * (len(minimum) - len(release)) >= minimum


CHECK = node_value(
    Params,
    HostInfo,
    "kernel",
    judge=judge,
    learn=itself,
    nothing="the baseline names no kernel",
    area=Area.KERNEL,
    unasked="only the site knows which kernels it tested: write kernel: 5.15.0-*-generic",
)
