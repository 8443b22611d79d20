"""GRUB's menu of one boot, of one of nodevet's files: whether it exists, and whether it is next."""

import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import read
from nodevet.remote.probe.grub_config import environment

NAME = re.compile(r"[a-z][a-z-]{0,40}\Z")
FILE = "/etc/default/grub.d/zz-nodevet-{}.cfg"


def look(root: str, name: str) -> "dict[str, object]":
    """`chosen`: GRUB boots it next. `made`: it was booted, or is not chosen."""
    if not NAME.match(name):
        raise ValueError("not the name of a file of nodevet")
    try:
        text = read(root, FILE.format(name))
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    if "NODEVET_ONCE" not in text:
        return absent()
    chosen = environment(root).get("next_entry") == "nodevet-once"
    return present("chosen" if chosen else "made")


def patterns(root: str, name: str) -> "Patterns":
    """Nothing else manages it."""
    return Patterns()
