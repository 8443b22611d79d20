"""The data of a site: runs, nights, hosts and trends of a store, each read once."""

from functools import cached_property
from typing import TYPE_CHECKING

from nodevet.past.sheets.diff import diff_sheet
from nodevet.past.sheets.runs import run_sheet, runs_sheet
from nodevet.past.sheets.trend import check_sheet
from nodevet.past.site import fleet, links, sheets
from nodevet.past.site.clock import CLOCK
from nodevet.past.use.nights import is_whole
from nodevet.past.use.recall import RunFound, find_diff, find_run, find_runs
from nodevet.past.use.trend import check_trend
from nodevet.sheet.model import Sheet
from nodevet.store.records.model import RecordedRun

if TYPE_CHECKING:
    from nodevet.store import Store

MOST_RUNS = 100  # the newest runs, which have pages
MOST_CHECKS = 100  # checks of a sweep that have pages
MOST_SWEEPS = 8  # sweeps whose last nights the first page shows


class SiteHistory:
    """The history of a store. `recorded`: all runs, the newest first; `shown`: those with pages;
    `run_names`: the name of each shown run in lists. Methods raise StoreError."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self.recorded = store.runs()
        newest = self.recorded[:MOST_RUNS]
        self.shown = [*newest, *(run for run in self.nights if run not in newest)]
        self.run_names = links.run_names(
            [run.id for run in self.shown], [run.id for run in self.recorded]
        )
        self._runs: dict[str, RunFound] = {}
        self._diffs: dict[str, Sheet] = {}

    @cached_property
    def nights(self) -> list[RecordedRun]:
        """The last night of each sweep, or the last check by hand if there is no sweep."""
        nights = list(fleet.LastNights(self.recorded).last.values())[:MOST_SWEEPS]
        return nights or [run for run in self.recorded if is_whole(run)][:1]

    @cached_property
    def lines(self) -> list[fleet.HostLine]:
        """A line for each host, the worst first."""
        marked = [run.id for run in self.recorded[: fleet.MARKED]]
        spans = (span for run in self.nights for span in self.run(run).findings)
        return fleet.fleet(
            self.store.hosts_now(),
            self.recorded,
            self.store.outcomes(marked),
            (span for span in spans if span.end is None and span.check),
        )

    @cached_property
    def host_marks(self) -> dict[str, str]:
        """By host, a mark that changes with the host."""
        return {host.host: host.mark for host in self.store.hosts_now()}

    def run(self, run: RecordedRun) -> RunFound:
        """The record of a run."""
        if run.id not in self._runs:
            self._runs[run.id] = find_run(self.store, run.id)
        return self._runs[run.id]

    def diff_sheet(self, found: RunFound) -> Sheet | None:
        """The differences between a run and the night before it; None if there is no such night."""
        run = found.run.run.id
        if run not in self._diffs and found.before is not None:
            diff = find_diff(self.store, found.before.run.id, run)
            self._diffs[run] = diff_sheet(diff.diff, diff.refs, CLOCK)
        return self._diffs.get(run)

    def forget(self, run: RecordedRun) -> None:
        """Free the memory of a run after its pages are written. Keep the last night of a sweep,
        which other pages show, too."""
        if run not in self.nights:
            self._runs.pop(run.id, None)
            self._diffs.pop(run.id, None)

    @cached_property
    def check_sheets(self) -> dict[str, Sheet]:
        """The trend of each check that failed in the last night of a sweep."""
        trends: dict[str, list[Sheet]] = {}
        for night in self.nights:
            spans = self.run(night).findings
            series = [run for run in self.shown if run.series == night.series]
            runs = series[: fleet.MARKED][::-1]
            for check in sorted({span.check for span in spans if span.check})[:MOST_CHECKS]:
                standing = self.store.standing_verdicts(check, [run.id for run in runs])
                trend = check_trend(self.store, check, runs, standing)
                trends.setdefault(check, []).append(check_sheet(trend, CLOCK))
        return {check: sheets.check_sheet(check, found) for check, found in trends.items()}

    @cached_property
    def runs_sheet(self) -> Sheet:
        """The list of the newest runs."""
        runs = find_runs(self.store, series=None, most=MOST_RUNS, after=None)
        return runs_sheet(runs.runs, "", CLOCK, more=False)


def sheet_of_run(found: RunFound) -> Sheet:
    """The hosts and findings of a run."""
    return run_sheet(found.run, found.hosts, found.findings, None, CLOCK, found.earlier)
