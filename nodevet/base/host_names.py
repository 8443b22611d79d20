"""The form of the names and addresses of hosts. Pure."""

import re

NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


def is_address6(text: str) -> bool:
    """Whether a text is an IPv6 address, with or without a scope (`fe80::1%eth0`)."""
    from ipaddress import AddressValueError, IPv6Address

    address, percent, scope = text.partition("%")
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return not percent or NAME.fullmatch(scope) is not None


def name_problem(name: str) -> str:
    """Why this cannot be a host's name, or ""."""
    if NAME.fullmatch(name) or (":" in name and is_address6(name)):
        return ""
    if not name:
        return "a host needs a name"
    if name.startswith("-"):
        return "a host name must not begin with a dash: ssh would take it for an option"
    if len(name) > 253:
        return "a host name has at most 253 characters"
    return "not a host name: only letters, digits, '.', '-' and '_', or an IPv6 address"
