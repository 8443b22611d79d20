"""One host with user and port on the command line: `root@gpu001:2222`. Pure."""

import re

from nodevet.base.host_names import is_address6, name_problem
from nodevet.base.nodeset import NodesetError
from nodevet.inventory.entries import HostEntry, Setting
from nodevet.inventory.settings import validate

BRACKETED = re.compile(r"\[([^\[\]]*:[^\[\]]*)\](?::(.*))?")


def is_single(term: str) -> bool:
    """Whether a term has more than a name: a user, a port, or an IPv6 address."""
    return "@" in term or ":" in term


def single(term: str) -> HostEntry:
    """The host of `[user@]host[:port]`. Raises NodesetError."""
    user, at, rest = term.rpartition("@")
    name, port = _host_and_port(rest)
    if "[" in name or "]" in name:
        text = "a user and a port are for a single host"
        raise NodesetError(f"{text}; for many, write an inventory or ~/.ssh/config")
    problem = name_problem(name)
    if problem:
        raise NodesetError(problem, len(user) + len(at) + 1)
    values: dict[str, object] = {"user": user} if at else {}
    if port is not None:
        if not (port.isascii() and port.isdigit() and len(port) <= 5):
            raise NodesetError("a port is a number", len(term) - len(port) + 1)
        values["port"] = int(port)
    settings, problems = validate(values)
    if problems:
        raise NodesetError("{}: {}".format(*problems[0]))
    return HostEntry(
        name, "target", settings={k: Setting(v, "target") for k, v in settings.items()}
    )


def _host_and_port(text: str) -> tuple[str, str | None]:
    if is_address6(text):
        return text, None
    match = BRACKETED.fullmatch(text)
    if match:
        return match[1], match[2]
    name, colon, port = text.partition(":")
    return name, port if colon else None
