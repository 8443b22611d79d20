"""ProxyJump of ssh_config(5): the hops to a host. Pure."""

import re
from typing import NamedTuple
from urllib.parse import unquote

from nodevet.fleet.ssh.words import WordError

_PLACE = re.compile(r"\[([^\]\s]+)\](?::(\d*))?|([^:/\[\]\s]+)(?:[:/](\d*))?")


class Hop(NamedTuple):
    """One of them; what it does not say, ssh_config says of it."""

    host: str
    user: str | None
    port: int | None


def hops(text: str) -> tuple[Hop, ...]:
    """`[user@]host[:port]` or `ssh://[user@]host[:port]`, apart by commas; none for `none`.

    Raises WordError.
    """
    text = text.partition("#")[0].rstrip()
    if text.lower() == "none":
        return ()
    return tuple(_hop(each) for each in text.split(","))


def _hop(text: str) -> Hop:
    uri = text.startswith("ssh://")
    user, at, place = text.removeprefix("ssh://").rpartition("@")
    if uri:
        user, place = unquote(user.partition(";")[0]), place.removesuffix("/")
    found = _PLACE.fullmatch(place)
    if found is None or (at and not user):
        raise WordError(f"ProxyJump {text!r} is not [user@]host[:port]")
    host, port = found[1] or found[3], found[2] or found[4]
    if port and not 0 < int(port) < 65536:
        raise WordError(f"ProxyJump {text!r}: port must be 1 to 65535")
    return Hop(host, user or None, int(port) if port else None)
