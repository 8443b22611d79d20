"""A parameter of the kernel in the entries of /boot/grub/grub.cfg."""

import re

from nodevet.remote.look import absent, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import read
from nodevet.remote.probe.grub_config import PATH, command_lines, words_of

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")


def look(root: str, name: str) -> "dict[str, object]":
    """The different texts that the entries have of it, such as `iommu=pt`; "" of an entry without
    it."""
    if not NAME.match(name):
        raise ValueError("not the name of a kernel parameter")
    try:
        lines = list(command_lines(read(root, PATH)))
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    if not lines:
        return unknown("no entry boots Linux", exists=True)
    return present(sorted({words_of(name, line) for line in lines}))


def patterns(root: str, name: str) -> "Patterns":
    """TuneD's boot loader plug-in, and commands that edit the command line."""
    word = r"(?<![\w.-]){}(?![\w.-])".format(re.sub("[-_]", "[-_]", re.escape(name)))
    return Patterns(
        r"(?:\bgrubby\b|\bkernelstub\b|GRUB_CMDLINE_LINUX).*" + word,
        tuned=r"cmdline\w*\s*[+-]?=.*" + word,
    )
