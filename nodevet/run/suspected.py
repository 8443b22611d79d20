"""What too many hosts began to fail in one recorded run: what no fix is planned for by itself."""

from collections.abc import Collection

from nodevet.history.model import BegunTogether
from nodevet.remedy.plan.candidates import Suspected
from nodevet.run.errors import UserError
from nodevet.run.recall import NothingRecordedError, open_history
from nodevet.run.sweep import budget_of
from nodevet.run.which_store import NONE, recorded_in
from nodevet.settings import SiteSettings, settings
from nodevet.suspicion import over


def suspected(store: str | None, checks: Collection[str]) -> tuple[Suspected, ...]:
    """By what a store remembers; nothing where there is none. Raises UserError."""
    if store == NONE:
        return ()
    site = settings()
    url = recorded_in(store, site.store_url, reaches=True)
    if url is None or not checks:
        return ()
    from nodevet.store import StoreError

    try:
        with open_history(url or None) as history:
            begun = history.begun(checks)
    except NothingRecordedError:
        return ()
    except StoreError as error:
        raise UserError(str(error)) from error
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
