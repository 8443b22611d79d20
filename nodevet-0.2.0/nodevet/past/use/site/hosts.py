"""Render the pages of hosts, in several processes if there are many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.base.errors import UserError
from nodevet.base.processes import batches, spread
from nodevet.past.sheets.story import story_sheet
from nodevet.past.site import links, names, sheets
from nodevet.past.site.clock import CLOCK
from nodevet.past.site.fleet import HostLine
from nodevet.past.site.pages import PageRenderer
from nodevet.past.story import HostStory
from nodevet.past.use.site.history import SiteHistory
from nodevet.past.use.story import find_host

BATCH = 32  # hosts that one process renders at a time
WORTH = 64  # hosts; for fewer, starting several processes costs more than it saves


class HostRendered(NamedTuple):
    """The page of a host, and the parts of the host that have pages of their own."""

    host: str
    text: str
    parts: tuple[str, ...]


def render_hosts(
    url: str | None,
    history: SiteHistory,
    lines: Sequence[HostLine],
    pages: PageRenderer,
    processes: int,
) -> Iterator[HostRendered]:
    """The pages of the hosts in `lines`. `url`: the store, which each process opens for itself.
    Raises StoreError, and UserError if every process that tried to render a host was killed."""
    by_name = links.paths([line.host for line in history.lines], (), history.run_names)
    started = {run.id: run.started for run in history.recorded}
    by_host = {line.host: line for line in lines}
    rendered = spread(
        lambda: _host_renderer(url, by_host, started, by_name, pages),
        batches(list(by_host), BATCH),
        processes=processes if len(lines) >= WORTH else 1,
        on_killed=lambda *_: None,  # another process takes its hosts, or _refuse_lost raises
        lost_result=_refuse_lost,
    )
    for batch in rendered:
        yield from batch


def _host_renderer(
    url: str | None,
    lines: Mapping[str, HostLine],
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
    """The parts of a host with a page: those that were added or removed, or had a finding."""
    moved = {event.part.id for event in story.events if event.part is not None}
    subjects = [event.finding.subject for event in story.events if event.finding is not None]
    named = {name for subject in subjects for name in (subject.uuid, subject.bus_id)} - {None}
    troubled = {place.part.id for place in story.parts if {place.part.id, place.slot} & named}
    return tuple(sorted(moved | troubled))


def _refuse_lost(hosts: Sequence[str]) -> list[HostRendered]:
    raise UserError("the pages of some hosts cannot be made: each process that tried was killed")
