"""What the probe must read by name, since baselines ask for it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from nodevet import typed
from nodevet.catalog import Catalog
from nodevet.model import Expectation
from nodevet.run.context import VetContext

ASKS = 500  # names that the probe takes in one request
AskedName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AskError(Exception):
    """What baselines ask of the probe cannot be asked; the message says why."""


def asks(context: VetContext, *, fixes: bool = False) -> dict[str, tuple[str, ...]]:
    """The names that the probe must read for any of these baselines, by section.

    `fixes`: for what a plan is made of, too; a run of checks does not load them.
    Raises AskError if a check or a fix asks for what is not a name, or all of them for more
    than the probe takes.
    """
    found: dict[str, set[str]] = {}
    for baseline in context.baselines:
        for wish in baseline.expectations:
            for section, names in _asked(context.catalog, wish, fixes):
                found.setdefault(section, set()).update(names)
    count = sum(map(len, found.values()))
    if count > ASKS:
        raise AskError(
            f"the baselines name {count} kernel parameters and units together, and the probe "
            f"reads {ASKS}; judge with fewer at a time (-b)"
        )
    return {section: tuple(sorted(names)) for section, names in sorted(found.items())}


def _asked(catalog: Catalog, wish: Expectation, fixes: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Of the check, and of its fix, whether or not the baseline allows it: a plan may."""
    fix = catalog.fix(wish.check) if fixes else None
    found = _called(catalog.check(wish.check).asks, catalog.path(wish.check), wish.params)
    if fix is not None:
        found += _called(fix.asks, catalog.fix_path(wish.check), wish.params)
    return found


def _called(
    asks: Callable[[Any], Mapping[str, tuple[str, ...]]] | None, path: Path, params: Any
) -> list[tuple[str, tuple[str, ...]]]:
    if asks is None:
        return []
    try:
        found = typed.convert(asks(params), dict[str, tuple[AskedName, ...]])
    except Exception as error:  # a fault in a user's own check or fix
        raise AskError(f"{path}: asks failed: {type(error).__name__}: {error}") from error
    return list(found.items())
