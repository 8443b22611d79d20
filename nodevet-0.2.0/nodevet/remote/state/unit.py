"""A unit of systemd."""

import re

from nodevet.remote.look import absent, present, require_this_machine, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.systemd import show_one

PROPERTIES = ("LoadState", "UnitFileState", "ActiveState", "FragmentPath")
UNIT_VERBS = "start|stop|enable|disable|mask|unmask"
LATENCY_UNIT = "nodevet-cpu-idle-states.service"  # of the fix cpu_idle_states
LATENCY = r"\bcpu_dma_latency\b"


def look(root: str, name: str) -> "dict[str, object]":
    """{enabled: UnitFileState, active: ActiveState, masked, fragment}, by systemctl show."""
    require_this_machine(root)
    rows = show_one(name, PROPERTIES)
    if rows["LoadState"] == "not-found":
        return absent()
    if rows["LoadState"] not in ("loaded", "masked"):
        return unknown("systemd could not load it: " + rows["LoadState"], exists=True)
    return present(
        {
            "enabled": rows["UnitFileState"],
            "active": rows["ActiveState"],
            "masked": rows["LoadState"] == "masked",
            "fragment": rows["FragmentPath"],
        }
    )


def patterns(root: str, name: str) -> "Patterns":
    """Commands of systemctl(1) or service(8) that start, stop, enable or mask it; for the unit that
    holds /dev/cpu_dma_latency, also what else holds the device."""
    stem = name[: -len(".service")] if name.endswith(".service") else name
    service = r"{}(?:\.service)?(?![\w.@-])".format(re.escape(stem))
    words = r"systemctl\b[^;|&]*\s(?:{0})\s[^;|&]*{1}|\bservice\s+{1}\s+(?:start|stop)".format(
        UNIT_VERBS, r"(?<![\w.@-])" + service
    )
    if name == LATENCY_UNIT:
        tuned = LATENCY + r"|^\s*force_latency\s*="
        return Patterns("{}|{}".format(words, LATENCY), tuned=tuned, unit=name)
    return Patterns(words, unit=name)
