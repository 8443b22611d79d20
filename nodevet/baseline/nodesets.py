"""Sets of host names as people write them in baselines: `gpu[001-128]`."""

import re

from nodevet.base.nodeset import NodesetError, names_in

ALLOWED = re.compile(r"[A-Za-z0-9._:,\[\]/!&^-]+")
EXAMPLE = "write it like gpu[001-128]"


def hosts(text: str) -> frozenset[str]:
    """The host names in a nodeset. Raises ValueError with a message for the user."""
    if not ALLOWED.fullmatch(text):
        raise ValueError("must be host names such as gpu[001-128]; join several with commas")
    try:
        names = frozenset(names_in(text))
    except NodesetError as error:
        raise ValueError(f"is not a nodeset ({error}); {EXAMPLE}") from error
    if not names:
        raise ValueError(f"names no host; {EXAMPLE}")
    return names
