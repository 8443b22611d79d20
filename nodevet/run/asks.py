"""What the probe must read by name, since baselines ask for it."""

from typing import Annotated

import msgspec

from nodevet.catalog import Catalog
from nodevet.model import Expectation
from nodevet.run.context import VetContext

ASKS = 500  # names that the probe takes in one request
AskedName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AskError(Exception):
    """What baselines ask of the probe cannot be asked; the message says why."""


def asks(context: VetContext) -> dict[str, tuple[str, ...]]:
    """The names that the probe must read for any of these baselines, by section.

    Raises AskError if a check asks for what is not a name, or for more than the probe takes.
    """
    found: dict[str, set[str]] = {}
    for baseline in context.baselines:
        for wish in baseline.expectations:
            for section, names in _asked(context.catalog, wish):
                found.setdefault(section, set()).update(names)
    count = sum(map(len, found.values()))
    if count > ASKS:
        raise AskError(
            f"the baselines name {count} kernel parameters and units together, and the probe "
            f"reads {ASKS}; judge with fewer at a time (-b)"
        )
    return {section: tuple(sorted(names)) for section, names in sorted(found.items())}


def _asked(catalog: Catalog, wish: Expectation) -> list[tuple[str, tuple[str, ...]]]:
    ask = catalog.check(wish.check).asks
    if ask is None:
        return []
    try:
        found = msgspec.convert(ask(wish.params), dict[str, tuple[AskedName, ...]])
    except Exception as error:  # a fault in a user's own check
        raise AskError(
            f"{catalog.path(wish.check)}: asks failed: {type(error).__name__}: {error}"
        ) from error
    return list(found.items())
