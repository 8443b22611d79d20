"""Write a site. nodevet renders a page again only if its content changed, and replaces its file
only if the file differs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nodevet import __version__
from nodevet.base.errors import UserError
from nodevet.base.printable import plain
from nodevet.past.sheets.passport import passport_sheet
from nodevet.past.site import links, names, sheets
from nodevet.past.site.clock import CLOCK
from nodevet.past.site.folder import Manifest, SiteFolder, site_folder
from nodevet.past.site.pages import PageRenderer, digest, read_assets
from nodevet.past.use.site.history import SiteHistory, sheet_of_run
from nodevet.past.use.site.hosts import render_hosts
from nodevet.past.use.site.lists import (
    news_tiles,
    write_first_page,
    write_lists,
    write_search_data,
)
from nodevet.past.use.story import part_passport
from nodevet.sheet import page
from nodevet.sheet.text import name
from nodevet.store.records.model import PartPlace, RecordedRun

if TYPE_CHECKING:
    from nodevet.store import Store


def write_site(url: str | None, folder: Path, *, processes: int = 1) -> sheets.SiteWritten:
    """Write the pages of a store (None: the user's own) into a folder, or only those that changed
    since the last time.

    `processes`: how many processes to fork for the pages of hosts; pass 1 from a process with
    threads. It writes a page before the pages that link to it, and the first page last; then it
    deletes old pages. Raises StoreError, and UserError if it cannot use or write the folder.
    """
    from nodevet.store import open_store

    try:
        with open_store(url, create=False) as store, site_folder(folder) as files_of_site:
            return _SiteWriter(url, store, files_of_site, processes).write()
    except OSError as error:
        place = error.filename or folder
        raise UserError(f"{place}: cannot be written: {error.strerror or error}") from error


class _SiteWriter:
    """Writes the site once."""

    def __init__(self, url: str | None, store: "Store", folder: SiteFolder, processes: int) -> None:
        self._url, self._store, self._folder = url, store, folder
        self._processes = processes
        self._assets = read_assets()
        self._pages = PageRenderer(self._assets)
        self._history = SiteHistory(store)
        oldest = [run.id for run in self._history.recorded[-1:]]
        self._of = digest(__version__, self._assets, store.name, oldest)
        if folder.before.of != self._of:
            folder.before = Manifest()

    def write(self) -> sheets.SiteWritten:
        folder, history, pages = self._folder, self._history, self._pages
        folder.write(self._assets.style_file, self._assets.style)
        folder.write(self._assets.script_file, self._assets.script)
        parts = self._write_hosts()
        paged = sorted({part for of_host in parts.values() for part in of_host})
        by_name = links.paths([line.host for line in history.lines], paged, history.run_names)
        self._write_parts(paged, parts, by_name)
        for run in history.shown:
            self._write_run(run, by_name)
        write_search_data(folder, history, frozenset(paged))
        for check, sheet in history.check_sheets.items():
            path = names.check_page(check)
            folder.write(path, pages.render(path, sheet, by_name))
        by_name |= {plain(check): names.check_page(check) for check in history.check_sheets}
        write_lists(folder, history, pages, by_name)
        write_first_page(folder, history, pages, by_name)
        folder.finish(self._of, parts)
        return sheets.SiteWritten(
            folder=str(folder.folder),
            hosts=len(history.lines),
            parts=len(paged),
            runs=len(history.shown),
            written=folder.written,
            removed=folder.removed,
        )

    def _write_hosts(self) -> dict[str, tuple[str, ...]]:
        """Write the pages of hosts that changed. Returns, by host, its parts that have pages."""
        before, history = self._folder.before.parts, self._history
        marks = {
            line.host: f"{history.host_marks[line.host]} {line.word}" for line in history.lines
        }
        stale = [
            line
            for line in history.lines
            if not self._folder.has_page(names.host_page(line.host), marks[line.host])
        ]
        parts = {line.host: before.get(line.host, ()) for line in history.lines}
        for rendered in render_hosts(self._url, history, stale, self._pages, self._processes):
            parts[rendered.host] = rendered.parts
            path = names.host_page(rendered.host)
            self._folder.write(path, rendered.text, marks[rendered.host])
        return {host: of_host for host, of_host in parts.items() if of_host}

    def _write_parts(
        self,
        paged: Sequence[str],
        of_hosts: Mapping[str, Sequence[str]],
        by_name: Mapping[str, str],
    ) -> None:
        """Write the pages of parts that changed."""
        marks: dict[str, list[str]] = {part: [] for part in paged}
        for host, of_host in sorted(of_hosts.items()):
            for part in of_host:
                marks[part].append(self._history.host_marks[host])
        counted = self._store.last_counter_changes(paged)
        for part in paged:
            path = names.part_page(part)
            mark = digest(marks[part], counted.get(part))[:16]
            if not self._folder.has_page(path, mark):
                places = self._store.places(part=part)
                sheet = passport_sheet(part_passport(self._store, places[-1].part), CLOCK)
                text = self._pages.render(path, sheet, by_name, _hosts_of_part(places))
                self._folder.write(path, text, mark)

    def _write_run(self, run: RecordedRun, by_name: Mapping[str, str]) -> None:
        """Write the pages of a run and of its differences, unless they are up to date."""
        path, diff = names.run_page(run.id), names.diff_page(run.id)
        mark = f"{run.state.value} {run.visited} {run.exit_code}"
        had_diff = diff in self._folder.before.pages
        if self._folder.has_page(path, mark) and (
            not had_diff or self._folder.has_page(diff, mark)
        ):
            return
        recorded = self._history.run(run)
        tiles: list[page.Tile] = []
        sheet = self._history.diff_sheet(recorded)
        if recorded.before is not None and sheet is not None:
            pair = [recorded.before.run, run]
            crumbs = [(sheets.run_title(one), names.run_page(one.id)) for one in pair]
            self._folder.write(diff, self._pages.render(diff, sheet, by_name, crumbs), mark)
            tiles = news_tiles(recorded.run, diff)
        text = self._pages.render(path, sheet_of_run(recorded), by_name, tiles=tiles)
        self._folder.write(path, text, mark)
        self._history.forget(run)


def _hosts_of_part(places: Sequence[PartPlace]) -> list[tuple[str, str]]:
    """The names and pages of the hosts of a part, the last host first."""
    hosts = dict.fromkeys(place.host for place in reversed(places))
    return [(name(host), names.host_page(host)) for host in hosts]
