"""`nodevet prune`: delete old evidence, and report what it freed."""

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
    """What was deleted, or would be."""

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
        """`deleted the evidence of 1,204 visits, 12.5 MB freed; 80.0 MB in …`."""
        visits = f"{self.thinned:,} {'visit' if self.thinned == 1 else 'visits'}"
        place = f"{_megabytes(self.size_b)} in {plain(self.store)}"
        if self.dry_run:
            return f"would delete the evidence of {visits}; {place}"
        return f"deleted the evidence of {visits}, {_megabytes(self.freed_b)} freed; {place}"


def policy_of(daily: float | None, weekly: float | None, monthly: float | None) -> Retention:
    """The policy of these times in seconds; nodevet.toml replaces None. Raises SettingsError."""
    retention = settings().settings.retention or RetentionSettings()
    return Retention(
        daily=retention.daily if daily is None else round(daily / DAY),
        weekly=retention.weekly if weekly is None else round(weekly / WEEK),
        monthly=retention.monthly if monthly is None else round(monthly / MONTH),
    )


def prune(store: "Store", policy: Retention, now: float, *, dry_run: bool) -> PruneResult:
    """Delete the evidence that the policy does not keep. Raises StoreError."""
    if dry_run:
        thinned, freed = store.count_prunable(policy, now), 0
    else:
        pruned = store.prune(policy, now)
        thinned, freed = pruned.thinned, pruned.freed_b
    return PruneResult(
        store=store.name, dry_run=dry_run, thinned=thinned, freed_b=freed, size_b=store.size()
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
