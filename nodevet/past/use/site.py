"""Write the history as a folder of linked pages. A page is made again only if what it shows
changed; its file is replaced only if it differs."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nodevet import __version__
from nodevet.base.errors import UserError
from nodevet.base.printable import plain
from nodevet.base.processes import batches, spread
from nodevet.past.listing import RunLine
from nodevet.past.sheets.runs import diff_sheet, run_sheet, runs_sheet
from nodevet.past.sheets.story import passport_sheet, story_sheet
from nodevet.past.sheets.trend import check_sheet
from nodevet.past.site import fleet, links, names, search, sheets
from nodevet.past.site.clock import CLOCK
from nodevet.past.site.folder import Manifest, SiteFolder, site_folder
from nodevet.past.story import HostStory
from nodevet.past.use.nights import is_whole
from nodevet.past.use.recall import RunFound, find_diff, find_run, find_runs
from nodevet.past.use.story import find_host, part_passport
from nodevet.past.use.trend import check_trend
from nodevet.sheet import page
from nodevet.sheet.model import Sheet
from nodevet.sheet.text import count, name
from nodevet.store.records.model import PartPlace, RecordedRun

if TYPE_CHECKING:
    from nodevet.store import Store

HERE = "nodevet.past.site"
BATCH = 32  # hosts that one process renders at a time
WORTH = 64  # hosts from which on several processes are worth starting
MOST_RUNS = 100  # that have pages, the newest
MOST_CHECKS = 100  # of a sweep that have pages
MOST_SWEEPS = 8  # whose last nights are on the first page
MENU = (("Fleet", "index.html"), ("Hosts", names.list_page(0)), ("Runs", "runs.html"))


class HostRendered(NamedTuple):
    """The page of a host, and the parts of the host that have pages of their own."""

    host: str
    text: str
    parts: tuple[str, ...]


def write_site(url: str | None, folder: Path, *, processes: int = 1) -> sheets.SiteWritten:
    """Write the site of a store (None: the user's own), or what changed in it since the last time.

    `processes`: how many may be forked to render pages of hosts; a process with threads forks none.
    Pages come before what links to them, and the first page last; only then are old pages deleted.
    Raises StoreError, and UserError if the folder cannot be used or written.
    """
    from nodevet.store import open_store

    try:
        with open_store(url, create=False) as store, site_folder(folder) as files_of_site:
            return _Site(url, store, files_of_site, processes).write()
    except OSError as error:
        place = error.filename or folder
        raise UserError(f"{place}: cannot be written: {error.strerror or error}") from error


class Assets(NamedTuple):
    """The style sheet and the script of all pages, with the names of their files."""

    style: str
    script: str

    @property
    def style_file(self) -> str:
        return f"site-{_digest(self.style)[:12]}.css"

    @property
    def script_file(self) -> str:
        return f"site-{_digest(self.script)[:12]}.js"


def _assets() -> Assets:
    sheet = "nodevet.sheet"
    texts = (files(HERE).joinpath(name).read_text("utf-8") for name in ("site.css", "site.js"))
    style, script = texts
    return Assets(page.source(sheet, "base") + page.source(sheet, "style") + style, script)


def _digest(*texts: object) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()


class PageRenderer:
    """Renders sheets as pages of a site."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    def render(
        self,
        path: str,
        sheet: Sheet,
        by_name: Mapping[str, str],
        crumbs: Sequence[tuple[str, str]] = (),
        tiles: Sequence[page.Tile] = (),
        host: str = "",
        began: str = "",
    ) -> str:
        """The page at a path below the site's folder. The script shows the last visit of `host`, or
        how long ago the last run `began`."""
        top = "../" if "/" in path else ""
        frame = page.SiteFrame(
            top=top,
            style=top + self._assets.style_file,
            script=top + self._assets.script_file,
            menu=tuple((label, top + to) for label, to in MENU),
            crumbs=tuple((label, top + to) for label, to in crumbs),
            linked=links.linker(by_name, top),
            tiles=tuple(tile._replace(path=top + tile.path) for tile in tiles),
            state=search.state_key(host) if host else "",
            about=names.page_name(host) if host else began,
            foot=f"Times are UTC. nodevet {__version__}",
        )
        return page.render(sheet, frame)


class _Site:
    """One writing of a site."""

    def __init__(self, url: str | None, store: "Store", folder: SiteFolder, processes: int) -> None:
        self._url, self._store, self._folder = url, store, folder
        self._processes = processes
        self._assets = _assets()
        self._pages = PageRenderer(self._assets)
        self._recorded = store.runs()
        newest = self._recorded[:MOST_RUNS]
        self._shown = [*newest, *(run for run in self._nights if run not in newest)]
        self._of = _digest(
            __version__, self._assets, store.name, [run.id for run in self._recorded[-1:]]
        )
        if folder.before.of != self._of:
            folder.before = Manifest()
        self._found: dict[str, RunFound] = {}
        self._diffs: dict[str, Sheet] = {}
        self._run_names = links.run_names(
            [run.id for run in self._shown], [run.id for run in self._recorded]
        )

    def write(self) -> sheets.SiteWritten:
        self._folder.write(self._assets.style_file, self._assets.style)
        self._folder.write(self._assets.script_file, self._assets.script)
        parts = self._hosts()
        paged = sorted({part for of_host in parts.values() for part in of_host})
        by_name = links.paths([line.host for line in self._lines], paged, self._run_names)
        self._parts(paged, parts, by_name)
        for run in self._shown:
            self._run(run, by_name)
        self._data(frozenset(paged))
        for check, shown in self._checks.items():
            path = names.check_page(check)
            self._folder.write(path, self._pages.render(path, shown, by_name))
        by_name |= {plain(check): names.check_page(check) for check in self._checks}
        self._lists(by_name)
        self._first_page(by_name)
        self._folder.finish(self._of, parts)
        return sheets.SiteWritten(
            folder=str(self._folder.folder),
            hosts=len(self._lines),
            parts=len(paged),
            runs=len(self._shown),
            written=self._folder.written,
            removed=self._folder.removed,
        )

    @cached_property
    def _marks(self) -> dict[str, str]:
        return {host.host: host.mark for host in self._store.hosts_now()}

    @cached_property
    def _nights(self) -> list[RecordedRun]:
        """The last night of each sweep, or the last check by hand if there is no sweep."""
        nights = list(fleet.LastNights(self._recorded).last.values())[:MOST_SWEEPS]
        return nights or [run for run in self._recorded if is_whole(run)][:1]

    @cached_property
    def _lines(self) -> list[fleet.HostLine]:
        marked = [run.id for run in self._recorded[: fleet.MARKED]]
        spans = (span for run in self._nights for span in self._run_found(run).findings)
        return fleet.fleet(
            self._store.hosts_now(),
            self._recorded,
            self._store.outcomes(marked),
            (span for span in spans if span.end is None and span.check),
        )

    # --- hosts and parts ---

    def _hosts(self) -> dict[str, tuple[str, ...]]:
        """Write the pages of hosts that changed. By host, its parts that have pages."""
        before = self._folder.before.parts
        marks = {line.host: f"{self._marks[line.host]} {line.word}" for line in self._lines}
        stale = [
            line
            for line in self._lines
            if not self._folder.has(names.host_page(line.host), marks[line.host])
        ]
        parts = {line.host: before.get(line.host, ()) for line in self._lines}
        for rendered in self._render_hosts(stale):
            parts[rendered.host] = rendered.parts
            path = names.host_page(rendered.host)
            self._folder.write(path, rendered.text, marks[rendered.host])
        return {host: of_host for host, of_host in parts.items() if of_host}

    def _render_hosts(self, lines: Sequence[fleet.HostLine]) -> Iterator[HostRendered]:
        every = links.paths([line.host for line in self._lines], (), self._run_names)
        started = {run.id: run.started for run in self._recorded}
        by_host = {line.host: line for line in lines}
        rendered = spread(
            lambda: _host_renderer(self._url, by_host, started, every, self._pages),
            batches(list(by_host), BATCH),
            processes=self._processes if len(lines) >= WORTH else 1,
            on_killed=lambda *_: None,  # another process takes its hosts, or _refuse_lost says so
            lost_result=_refuse_lost,
        )
        for batch in rendered:
            yield from batch

    def _parts(
        self,
        paged: Sequence[str],
        of_hosts: Mapping[str, Sequence[str]],
        by_name: Mapping[str, str],
    ) -> None:
        """Write the pages of parts that changed."""
        marks: dict[str, list[str]] = {part: [] for part in paged}
        for host, of_host in sorted(of_hosts.items()):
            for part in of_host:
                marks[part].append(self._marks[host])
        counted = self._store.counted(paged)
        for part in paged:
            path = names.part_page(part)
            mark = _digest(marks[part], counted.get(part))[:16]
            if not self._folder.has(path, mark):
                places = self._store.places(part=part)
                sheet = passport_sheet(part_passport(self._store, places[-1].part), CLOCK)
                text = self._pages.render(path, sheet, by_name, _of_part(places))
                self._folder.write(path, text, mark)

    # --- runs ---

    def _run_found(self, run: RecordedRun) -> RunFound:
        if run.id not in self._found:
            self._found = {**self._found, run.id: find_run(self._store, run.id)}
        return self._found[run.id]

    def _run(self, run: RecordedRun, by_name: Mapping[str, str]) -> None:
        """Write the pages of a run and of its differences, unless they are there."""
        path, diff = names.run_page(run.id), names.diff_page(run.id)
        mark = f"{run.state.value} {run.visited} {run.exit_code}"
        had_diff = diff in self._folder.before.pages
        if self._folder.has(path, mark) and (not had_diff or self._folder.has(diff, mark)):
            return
        found = self._run_found(run)
        tiles: list[page.Tile] = []
        if found.before is not None:
            sheet = self._diff_sheet(found)
            pair = [found.before.run, run]
            crumbs = [(sheets.run_title(one), names.run_page(one.id)) for one in pair]
            self._folder.write(diff, self._pages.render(diff, sheet, by_name, crumbs), mark)
            tiles = _news_tiles(found.run, diff)
        text = self._pages.render(path, _run_sheet(found), by_name, tiles=tiles)
        self._folder.write(path, text, mark)
        if run not in self._nights:
            self._found.pop(run.id)
            self._diffs.pop(run.id, None)

    def _diff_sheet(self, found: RunFound) -> Sheet:
        run = found.run.run.id
        if run not in self._diffs and found.before is not None:
            diff = find_diff(self._store, found.before.run.id, run)
            self._diffs[run] = diff_sheet(diff.diff, diff.refs, CLOCK)
        return self._diffs[run]

    @cached_property
    def _checks(self) -> dict[str, Sheet]:
        """The trend of each check that something fails in the last night of a sweep."""
        trends: dict[str, list[Sheet]] = {}
        for run in self._nights:
            spans = self._run_found(run).findings
            runs = [it for it in self._shown if it.series == run.series][: fleet.MARKED][::-1]
            for check in sorted({span.check for span in spans if span.check})[:MOST_CHECKS]:
                standing = self._store.standing(check, [it.id for it in runs])
                trend = check_trend(self._store, check, runs, standing)
                trends.setdefault(check, []).append(check_sheet(trend, CLOCK))
        return {check: sheets.check_sheet(check, found) for check, found in trends.items()}

    # --- what links to these pages ---

    def _data(self, paged: frozenset[str]) -> None:
        """Write what the script loads. Portions of parts come before the list of them."""
        portions = []
        for first, rows in search.part_data(self._store.parts_now(), paged):
            key = search.chunk_key(rows)
            self._script(key, rows)
            portions.append([first, key])
        self._script("parts", portions)
        for key, states in search.state_data(self._lines):
            self._script(key, states)
        self._script("hosts", search.host_data(self._lines))

    def _script(self, key: str, data: object) -> None:
        self._folder.write(f"data/{key}.js", search.script(key, data))

    def _lists(self, by_name: Mapping[str, str]) -> None:
        """Write the lists of hosts and of runs."""
        firsts = range(0, max(1, len(self._lines)), sheets.ON_A_LIST)
        pager = [
            (f"{first + 1:,}–{min(first + sheets.ON_A_LIST, len(self._lines)):,}", path)
            for first, path in zip(firsts, map(names.list_page, range(len(firsts))), strict=True)
        ]
        for first, (_, path) in zip(firsts, pager, strict=True):
            some = self._lines[first : first + sheets.ON_A_LIST]
            sheet = sheets.hosts_sheet(some, first, len(self._lines))
            crumbs = pager if len(pager) > 1 else ()
            self._folder.write(path, self._pages.render(path, sheet, by_name, crumbs))
        self._folder.write("runs.html", self._pages.render("runs.html", self._runs, by_name))

    @cached_property
    def _runs(self) -> Sheet:
        found = find_runs(self._store, series=None, most=MOST_RUNS, after=None)
        return runs_sheet(found.runs, "", CLOCK, more=False)

    def _first_page(self, by_name: Mapping[str, str]) -> None:
        nights = [self._run_found(run) for run in self._nights]
        shown = [
            sheets.NightSheets(
                title=found.run.run.series,
                run=_run_sheet(found),
                diff=self._diff_sheet(found) if found.before else None,
            )
            for found in nights
        ]
        counts = fleet.counts(self._lines)
        title = f"{dict(counts)['fail']:,} of {count(len(self._lines), 'host')} fail"
        sheet = sheets.fleet_sheet(title, shown, self._runs)
        tiles = [*self._outcome_tiles(counts)]
        for found in nights:
            tiles += (
                _news_tiles(found.run, names.diff_page(found.run.run.id)) if found.before else []
            )
        crumbs = [(sheets.run_title(run), names.run_page(run.id)) for run in self._nights]
        text = self._pages.render(
            "index.html", sheet, by_name, crumbs, tiles, began=self._recorded[0].started
        )
        self._folder.write("index.html", text)

    def _outcome_tiles(self, counts: Sequence[tuple[str, int]]) -> Iterator[page.Tile]:
        first = 0
        for word, number in counts:
            path = names.list_page(first // sheets.ON_A_LIST)
            there = f"{path}#{sheets.anchor(word)}" if number else names.list_page(0)
            tone = fleet.TONES.get(word, "unreached") if number else "quiet"
            yield page.Tile(number, word, tone, there)
            first += number


def _run_sheet(found: RunFound) -> Sheet:
    return run_sheet(found.run, found.hosts, found.findings, None, CLOCK, found.earlier)


def _news_tiles(line: RunLine, diff: str) -> list[page.Tile]:
    """The numbers of findings that began and ended in a run."""
    new, fixed = line.new or 0, line.fixed or 0
    return [
        page.Tile(new, "new findings", "fail" if new else "quiet", diff),
        page.Tile(fixed, "fixed findings", "ok" if fixed else "quiet", diff),
    ]


def _of_part(places: Sequence[PartPlace]) -> list[tuple[str, str]]:
    """The hosts of a part, the last one first."""
    hosts = dict.fromkeys(place.host for place in reversed(places))
    return [(name(host), names.host_page(host)) for host in hosts]


def _host_renderer(
    url: str | None,
    lines: Mapping[str, fleet.HostLine],
    started: Mapping[str, str],
    by_name: Mapping[str, str],
    pages: PageRenderer,
) -> Callable[[Sequence[str]], list[HostRendered]]:
    from nodevet.store import open_store

    store = open_store(url, create=False)

    def render(host: str) -> HostRendered:
        story = find_host(store, host, started)
        parts = _paged_parts(story)
        sheet = sheets.host_sheet(story_sheet(story, CLOCK), lines[host], story.parts)
        own = {**by_name, **links.paths((), parts, {})}
        text = pages.render(names.host_page(host), sheet, own, host=host)
        return HostRendered(host, text, parts)

    return lambda hosts: [render(host) for host in hosts]


def _paged_parts(story: HostStory) -> tuple[str, ...]:
    """The parts of a host that came, left, or had a finding: they have pages of their own."""
    moved = {event.part.id for event in story.events if event.part is not None}
    subjects = [event.finding.subject for event in story.events if event.finding is not None]
    named = {name for subject in subjects for name in (subject.uuid, subject.bus_id)} - {None}
    troubled = {place.part.id for place in story.parts if {place.part.id, place.slot} & named}
    return tuple(sorted(moved | troubled))


def _refuse_lost(hosts: Sequence[str]) -> list[HostRendered]:
    raise UserError("the pages of some hosts cannot be made: each process that tried was killed")
