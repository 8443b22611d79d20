"""The boot that the node runs: its id."""

from nodevet.remote.look import present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import read

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def look(root: str, name: str) -> "dict[str, object]":
    """The boot id."""
    return present(read(root, BOOT_ID).strip())


def patterns(root: str, name: str) -> "Patterns":
    """Nothing else manages it."""
    return Patterns()
