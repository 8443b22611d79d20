"""A site of ten thousand hosts: how large what a browser loads is, by pure functions."""

import string

import pytest

from nodevet.model import HostOutcome, Severity
from nodevet.past.site import fleet, search, sheets
from nodevet.past.site.links import linker, paths
from nodevet.past.site.names import page_name
from nodevet.sheet.page import SiteFrame, render
from nodevet.store.records.latest import HostNow, PartNow
from nodevet.store.records.model import RecordedRun, RunState

HOSTS = 10_000


def run(number: int, visited: int, series: str = "nightly") -> RecordedRun:
    day = f"2026-11-{number:02d}"
    return RecordedRun(
        id=f"202611{number:02d}T020000",
        series=series,
        started=f"{day}T02:00:00+00:00",
        seconds=1.0,
        state=RunState.COMPLETE,
        nodevet="0",
        fail_on=Severity.WARNING,
        hosts=visited,
        visited=visited,
        outcomes={},
        baselines={},
    )


def now(host: str, last: RecordedRun, outcome: HostOutcome = HostOutcome.OK) -> HostNow:
    return HostNow(
        host=host,
        run=last.id,
        outcome=outcome,
        why="",
        at=last.started,
        groups=("h100", f"rack{len(host)}"),
        mark="",
    )


def large() -> list[fleet.HostLine]:
    night = run(20, HOSTS)
    worst = (HostOutcome.FAIL, HostOutcome.UNREACHABLE)
    hosts = [
        now(f"node{number:05d}", night, worst[number % 2] if number < 60 else HostOutcome.OK)
        for number in range(HOSTS)
    ]
    ended = {host.host: {night.id: host.outcome} for host in hosts}
    return fleet.fleet(hosts, [night], ended, ())


def test_what_a_search_loads_is_small() -> None:
    lines = large()
    assert fleet.counts(lines)[:2] == [("fail", 30), ("unknown", 0)]
    assert len(search.script("hosts", search.host_data(lines))) < 30 * HOSTS
    states = dict(search.state_data(lines))
    assert len(states) == 256
    assert max(len(search.script(key, rows)) for key, rows in states.items()) < 12_000


def test_one_page_lists_at_most_500_hosts() -> None:
    lines = large()
    sheet = sheets.hosts_sheet(lines[: sheets.ON_A_LIST], 0, HOSTS)
    by_name = paths([line.host for line in lines], (), {})
    frame = SiteFrame("", "site.css", "site.js", (), (), linker(by_name, ""))
    text = render(sheet, frame)
    assert "10,000 hosts: 1 to 500" in text
    assert text.count('<a href="hosts/node') == 500
    assert len(text) < 200_000


def test_a_long_nodeset_wraps_after_its_commas() -> None:
    """It has no spaces: a table of a thousand hosts would be as wide as their names."""
    link = linker(paths(["node001", "node003"], (), {}), "")
    assert str(link("node[001,003] down")) == (
        '<a class="set" href="hosts.html#q=node%5B001%2C003%5D">node[001,<wbr>003]</a> down'
    )
    assert str(link("other[1,<3]")) == "other[1,&lt;3]"
    assert str(link("other[1,3-4]")) == "other[1,<wbr>3-4]"


def test_a_new_part_changes_one_chunk_of_the_search_data() -> None:
    parts = [
        PartNow(name=f"gpu-{number:08x}", id=f"GPU-{number:08x}", host=f"node{number // 8:05d}")
        for number in range(20_000)
    ]
    before = {search.chunk_key(rows): rows for _, rows in search.part_data(parts, ())}
    new = PartNow(name="gpu-00001000-new", id="GPU-00001000-new", host="node00001")
    later = sorted([*parts, new], key=lambda part: part.name)
    after = {search.chunk_key(rows): rows for _, rows in search.part_data(later, ())}
    assert sum(map(len, before.values())) == 20_000
    assert len(before) > 20
    assert max(map(len, before.values())) < 20 * search.CHUNK
    assert len(after.keys() - before.keys()) == 1


def test_a_name_that_many_parts_share_is_not_searchable() -> None:
    shared = [PartNow(name="692-2g520", id=f"GPU-{n}", host="n1") for n in range(9)]
    assert list(search.part_data(shared, ())) == []
    ((first, rows),) = search.part_data(shared[:8], {"GPU-0"})
    assert (first, len(rows)) == ("692-2g520", 8)
    assert [row[3] for row in rows[:2]] == [f"parts/{page_name('GPU-0')}.html", "hosts/n1.html"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a/b",
        "gpu1.",
        "GPU1",
        "a.php",
        "con.",
        "x" * 300,
        "a~b",
        "a b",
        "\udcff",
        "é",
    ],
)
def test_a_file_name_is_safe(text: str) -> None:
    name = page_name(text)
    assert set(name) <= set(string.ascii_lowercase + string.digits + "-_~")
    assert 0 < len(name) <= 100


def test_no_two_texts_share_a_file_name() -> None:
    texts = [*"aA", "a.b", "a-b", "a~b", "a..b", "a_b", "a b", "A b", "a-B", "a\nb", "a--b", "a.B"]
    assert len({page_name(text).lower() for text in texts}) == len(texts)


def test_a_host_that_its_sweep_no_longer_visits_is_not_ok() -> None:
    before, night, few = run(18, 100), run(19, 100), run(20, 3)
    by_hand = run(21, 1, series="")
    runs = [by_hand, few, night, before]
    gone, stays, checked = now("gone", before), now("stays", night), now("checked", by_hand)
    nights = fleet.LastNights(runs)
    assert nights.last == {"nightly": night}
    assert nights.left_out(gone, [before.id])
    assert not nights.left_out(stays, [night.id])
    assert not nights.left_out(checked, [by_hand.id, before.id])
    assert fleet.LastNights([run(25, 1, "other"), *runs]).left_out(now("old", run(1, 5)), [])


def test_the_headline_counts_hosts_that_could_not_be_judged() -> None:
    """A fleet that cannot be reached must not look as if it were well."""
    lost = [("fail", 0), ("unknown", 1), ("unreachable", 2), ("timed out", 4)]
    well = [("ok", 1), ("waived", 1), (fleet.GONE, 5)]
    assert fleet.headline([*lost, *well]) == "0 of 14 hosts fail, 7 not judged"
    assert fleet.headline([("fail", 7), ("unknown", 0), *well]) == "7 of 14 hosts fail"
    assert fleet.headline([("fail", 0)]) == "no host is recorded"
