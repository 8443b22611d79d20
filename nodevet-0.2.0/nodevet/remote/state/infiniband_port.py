"""A port of an InfiniBand adapter, <device>/<number of the port>."""

import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.infiniband import CLASS, parse_state
from nodevet.remote.probe.files import parsed

WORDS = r"\bibportstate\b.*\b(?:disable|enable|off|on|reset)\b|\bmlxlink\b.*\s(?:DN|UP|TG)\b"
NAME = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,18})/([1-9][0-9]{0,2})\Z")


def look(root: str, name: str) -> "dict[str, object]":
    """Its physical state: LinkUp, Polling, Disabled; absent if there is no such port."""
    match = NAME.match(name)
    if match is None:
        raise ValueError("not a valid name of a port")
    path = "{}/{}/ports/{}/phys_state".format(CLASS, *match.groups())
    try:
        return present(parsed(root, path, parse_state))
    except FileNotFoundError:
        return absent()


def patterns(root: str, name: str) -> "Patterns":
    """Commands that disable or enable a port."""
    return Patterns(WORDS)
