"""A swap device or file, or all of them."""

from nodevet.remote.fstab import PATH, device_path, swap_fields
from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import read, resolve, text_lines


def look(root: str, name: str) -> "dict[str, object]":
    """{active, priority, fstab: lines in /etc/fstab} of a device or file, or of `all`."""
    rows = [row.split() for row in text_lines(read(root, "/proc/swaps"))[1:]]
    active = [row for row in rows if row and name in ("all", row[0])]
    try:
        table = text_lines(read(root, PATH))
    except FileNotFoundError:
        table = []
    lines = [line for line in table if is_line_of(root, line, name)]
    value = {"active": bool(active), "fstab": lines}
    if name != "all":
        value["priority"] = int(active[0][4]) if active else None
    return present(value) if active or lines else absent(value)


def is_line_of(root: str, line: str, name: str) -> bool:
    """Whether a line of fstab(5) is of this swap device, with `noauto` or without."""
    fields = swap_fields(line)
    if fields is None:
        return False
    device = device_path(fields[0])
    return name in ("all", device) or name == resolve(root, device)


def patterns(root: str, name: str) -> "Patterns":
    """Commands that turn swap on or off."""
    return Patterns(r"\bswap(?:on|off)\b")
