"""What GRUB gives the kernel of a node with a /boot/grub/grub.cfg: the first entry of its menu.

It knows no variable, so neither `grub-reboot` nor `grub-set-default` chooses another entry.
"""

import re
from pathlib import Path

MENU = "boot/grub/grub.cfg"
LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+(\S+)[ \t]*(.*)$", re.MULTILINE)
MOST = 1 << 20  # bytes of a menu


def command_line(menu: str) -> str | None:
    """The command line of the menu's first entry for Linux; None if it has none.

    >>> command_line("menuentry 'a' {\\n\\tlinux\\t/boot/vmlinuz root=/dev/sda ro \\n}")
    'BOOT_IMAGE=/boot/vmlinuz root=/dev/sda ro'
    """
    entry = LINUX.search(menu)
    return entry and f"BOOT_IMAGE={entry[1]} {' '.join(entry[2].split())}".strip()


def booted(root: Path) -> str | None:
    """The command line with which the node of this disk boots now; None without a menu."""
    path = root / MENU
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as menu:
        return command_line(menu.read(MOST).decode("utf-8", "replace"))
