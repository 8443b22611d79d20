"""The kernel command lines in /boot/grub/grub.cfg, as GRUB's script 10_linux writes them, and the
variables that GRUB keeps in /boot/grub/grubenv."""

import re

from nodevet.remote.probe.files import read, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

PATH = "/boot/grub/grub.cfg"
ENVIRONMENT = "/boot/grub/grubenv"
SCRIPT = re.compile(r"### BEGIN /etc/grub\.d/(\S+) ###")
LINUX = "10_linux"
COMMAND = re.compile(r"\s*linux(?:efi|16)?\s+\S+\s*(.*)")
ENTRY = re.compile(r"\s*menuentry\s")
RECOVERY = "-recovery-"  # in the id of an entry for one user at the console


def command_lines(text: str) -> "Iterator[str]":
    """The command line of each entry that boots Linux for all users; none of entries that people or
    other scripts wrote.

    >>> begin = "### BEGIN /etc/grub.d/10_linux ###\\n"
    >>> list(command_lines(begin + "menuentry 'a' {\\n\\tlinux\\t/vmlinuz ro pci=x\\n}"))
    ['ro pci=x']
    """
    is_linux = is_recovery = False
    for row in text_lines(text):
        begins = SCRIPT.match(row)
        if begins:
            is_linux = begins.group(1) == LINUX
        elif ENTRY.match(row):
            is_recovery = RECOVERY in row
        command = COMMAND.match(row)
        if command and is_linux and not is_recovery:
            yield command.group(1).strip()


def words_of(name: str, command_line: str) -> str:
    """The words of a command line that give this parameter; dashes and underscores are equal.

    >>> words_of("pci_x", "ro pci-x=1 quiet pci_x xpci_x")
    'pci-x=1 pci_x'
    """
    key = name.replace("-", "_")
    words = (word for word in command_line.split())
    return " ".join(word for word in words if word.partition("=")[0].replace("-", "_") == key)


def environment(root: str) -> "dict[str, str]":
    """The variables of grubenv; none without that file. Raises OSError, ValueError."""
    try:
        rows = text_lines(read(root, ENVIRONMENT))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    pairs = (row.partition("=") for row in rows if not row.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}
