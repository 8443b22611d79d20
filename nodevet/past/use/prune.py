"""Old evidence that goes, and what is said of it."""

from typing import TYPE_CHECKING, Any

import msgspec

from nodevet.base.printable import plain
from nodevet.settings import settings
from nodevet.settings.model import RetentionSettings
from nodevet.store.records.retention import Retention

if TYPE_CHECKING:
    from nodevet.store import Store

DAY = 86_400.0
WEEK = 7 * DAY
MONTH = 30 * DAY


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was let go, or would be."""

    store: str
    dry_run: bool
    thinned: int  # visits without their evidence
    freed_b: int
    size_b: int  # of the store, afterwards

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {"kind": "prune", **document}

    @property
    def words(self) -> str:
        """`evidence of 1,204 visits gone, 12.5 MB freed; 80 MB are left in …`."""
        visits = f"{self.thinned:,} {'visit' if self.thinned == 1 else 'visits'}"
        place = f"{_megabytes(self.size_b)} in {plain(self.store)}"
        if self.dry_run:
            return f"the evidence of {visits} would go; there are {place}"
        return f"the evidence of {visits} is gone, {_megabytes(self.freed_b)} freed; {place}"


def policy_of(daily: float | None, weekly: float | None, monthly: float | None) -> Retention:
    """By seconds; what is None is as nodevet.toml says. Raises SettingsError."""
    said = settings().settings.retention or RetentionSettings()
    return Retention(
        daily=said.daily if daily is None else round(daily / DAY),
        weekly=said.weekly if weekly is None else round(weekly / WEEK),
        monthly=said.monthly if monthly is None else round(monthly / MONTH),
    )


def prune(store: "Store", policy: Retention, now: float, *, dry_run: bool) -> PruneResult:
    """Thin the evidence out. Raises StoreError."""
    if dry_run:
        thinned, freed = store.prunable(policy, now), 0
    else:
        done = store.prune(policy, now)
        thinned, freed = done.thinned, done.freed_b
    return PruneResult(
        store=store.name, dry_run=dry_run, thinned=thinned, freed_b=freed, size_b=store.size()
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
