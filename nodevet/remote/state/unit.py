"""A unit of systemd."""

import re

from nodevet.remote.look import absent, of_this_machine, seen, unseen
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.systemd import show_all

PROPERTIES = ("LoadState", "UnitFileState", "ActiveState", "FragmentPath")
UNIT_VERBS = "start|stop|enable|disable|mask|unmask"


def look(root: str, name: str) -> "dict[str, object]":
    """{enabled: UnitFileState, active: ActiveState, masked, fragment}, as systemctl has them."""
    of_this_machine(root)
    rows = show_all(name, PROPERTIES)
    if rows["LoadState"] == "not-found":
        return absent()
    if rows["LoadState"] not in ("loaded", "masked"):
        return unseen("systemd could not load it: " + rows["LoadState"], exists=True)
    return seen(
        {
            "enabled": rows["UnitFileState"],
            "active": rows["ActiveState"],
            "masked": rows["LoadState"] == "masked",
            "fragment": rows["FragmentPath"],
        }
    )


def patterns(root: str, name: str) -> "Patterns":
    """Who starts, stops, enables or masks it by systemctl(1) or service(8)."""
    stem = name[: -len(".service")] if name.endswith(".service") else name
    called = r"{}(?:\.service)?(?![\w.@-])".format(re.escape(stem))
    words = r"systemctl\b[^;|&]*\s(?:{0})\s[^;|&]*{1}|\bservice\s+{1}\s+(?:start|stop)".format(
        UNIT_VERBS, r"(?<![\w.@-])" + called
    )
    return Patterns(words, unit=name)
