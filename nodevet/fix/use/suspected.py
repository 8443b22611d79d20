"""What too many hosts began to fail in one recorded run: what no fix is planned for by itself."""

from collections.abc import Collection

from nodevet.fix.plan.candidates import Suspected
from nodevet.settings import SiteSettings, settings
from nodevet.store.records.model import BegunTogether
from nodevet.vet.suspicion import over
from nodevet.vet.use.stores import asked_store
from nodevet.vet.use.sweep_order import budget_of


def suspected(store: str | None, checks: Collection[str]) -> tuple[Suspected, ...]:
    """By what a store remembers; nothing where there is none. Raises UserError."""
    if not checks:
        return ()
    with asked_store(store) as history:
        begun = history.begun(checks) if history else ()
    site = settings()
    return tuple(
        Suspected(
            check=each.check,
            still=each.still,
            hosts=each.hosts,
            judged=each.judged,
            on=each.started[:10],
        )
        for each in begun
        if _over(each, site)
    )


def _over(each: BegunTogether, site: SiteSettings) -> bool:
    budget = budget_of(site, each.series)
    return budget is not None and over(each.hosts, each.judged, budget.percent, budget.hosts)
