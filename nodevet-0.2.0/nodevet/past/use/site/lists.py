"""The pages that link to other pages: the first page, the lists, and the data of the search."""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.past.listing import RunLine
from nodevet.past.site import fleet, names, search, sheets
from nodevet.past.site.folder import SiteFolder
from nodevet.past.site.pages import PageRenderer
from nodevet.past.use.site.history import SiteHistory, sheet_of_run
from nodevet.sheet import page


def write_search_data(
    folder: SiteFolder, history: SiteHistory, paged_parts: frozenset[str]
) -> None:
    """Write the data that the pages' script loads, the portions of parts before their list. Raises
    OSError and StoreError."""

    def write(key: str, data: object) -> None:
        folder.write(f"data/{key}.js", search.script(key, data))

    portions = []
    for first, rows in search.part_data(history.store.parts_now(), paged_parts):
        key = search.chunk_key(rows)
        write(key, rows)
        portions.append([first, key])
    write("parts", portions)
    for key, states in search.state_data(history.lines):
        write(key, states)
    write("hosts", search.host_data(history.lines))


def write_lists(
    folder: SiteFolder, history: SiteHistory, pages: PageRenderer, by_name: Mapping[str, str]
) -> None:
    """Write the lists of hosts and of runs. Raises OSError and StoreError."""
    lines = history.lines
    firsts = range(0, max(1, len(lines)), sheets.ON_A_LIST)
    pager = [
        (f"{first + 1:,}–{min(first + sheets.ON_A_LIST, len(lines)):,}", names.list_page(number))
        for number, first in enumerate(firsts)
    ]
    crumbs = pager if len(pager) > 1 else ()
    for first, (_, path) in zip(firsts, pager, strict=True):
        some = lines[first : first + sheets.ON_A_LIST]
        sheet = sheets.hosts_sheet(some, first, len(lines))
        folder.write(path, pages.render(path, sheet, by_name, crumbs))
    folder.write("runs.html", pages.render("runs.html", history.runs_sheet, by_name))


def write_first_page(
    folder: SiteFolder, history: SiteHistory, pages: PageRenderer, by_name: Mapping[str, str]
) -> None:
    """Write index.html. Raises OSError and StoreError."""
    nights = [history.run(run) for run in history.nights]
    shown = [
        sheets.NightSheets(
            title=night.run.run.series, run=sheet_of_run(night), diff=history.diff_sheet(night)
        )
        for night in nights
    ]
    counts = fleet.counts(history.lines)
    title = fleet.headline(counts)
    tiles = list(_outcome_tiles(counts))
    for night in nights:
        if night.before is not None:
            tiles += news_tiles(night.run, names.diff_page(night.run.run.id))
    sheet = sheets.fleet_sheet(title, shown, history.runs_sheet)
    crumbs = [(sheets.run_title(run), names.run_page(run.id)) for run in history.nights]
    began = history.recorded[0].started
    folder.write(
        "index.html", pages.render("index.html", sheet, by_name, crumbs, tiles, began=began)
    )


def news_tiles(line: RunLine, diff: str) -> list[page.Tile]:
    """The numbers of findings that began and ended in a run. `diff`: the path of the page that
    shows them."""
    new, fixed = line.new or 0, line.fixed or 0
    return [
        page.Tile(new, "new findings", "fail" if new else "quiet", diff),
        page.Tile(fixed, "fixed findings", "ok" if fixed else "quiet", diff),
    ]


def _outcome_tiles(counts: Sequence[tuple[str, int]]) -> Iterator[page.Tile]:
    first = 0
    for word, number in counts:
        path = names.list_page(first // sheets.ON_A_LIST)
        there = f"{path}#{sheets.anchor(word)}" if number else names.list_page(0)
        tone = fleet.TONES.get(word, "unreached") if number else "quiet"
        yield page.Tile(number, word, tone, there)
        first += number
