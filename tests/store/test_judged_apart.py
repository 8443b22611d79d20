"""Hosts that other processes judge and prepare are recorded as those that this process judges."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import five_nights
import pytest
from msgspec import structs
from sqlalchemy import text

from nodevet.fleet import Options, Visit
from nodevet.model import Severity
from nodevet.model.run import Run, RunNews
from nodevet.store import Store, open_store
from nodevet.store.recorder import Recorder
from nodevet.vet.use import vet
from nodevet.vet.use.last_look import StoredLook
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.recording import Recording

HOSTS = ("gpu001", "gpu003", "gpu007", "gpu009", "gpu010", "a100-02", "a100-04", "a100-06")
TABLES = {
    "visit": "v.status, v.why, v.outcome, v.seconds, v.at from visit v "
    "join host h on h.id = v.host join run r on r.id = v.run",
    "finding_span": "b.name, s.key, s.verdict, s.severity, s.why, s.said, e.run, s.{end} "
    "from finding_span s join baseline b on b.id = s.baseline join host h on h.id = s.host "
    "join visit v on v.id = s.first join run r on r.id = v.run left join visit e on e.id = s.ended",
    "counter": "p.name, c.name, c.subject, c.value from counter c join host h on h.id = c.host "
    "left join part p on p.id = c.part join visit v on v.id = c.visit join run r on r.id = v.run",
    "place": "p.name, p.model, c.slot, e.run from place c join host h on h.id = c.host "
    "join part p on p.id = c.part join visit v on v.id = c.first join run r on r.id = v.run "
    "left join visit e on e.id = c.ended",
    "boot": "b.machine_id, b.boot_id from boot b join host h on h.id = b.host "
    "join visit v on v.id = b.visit join run r on r.id = v.run",
}


def rows(store: Store, table: str) -> list[Any]:
    """The rows of a table without their numbers, which depend on the order of arrival."""
    with store._database.engine.connect() as connection:
        end = '"end"'
        query = f"select h.name, r.id, {TABLES[table].format(end=end)}"
        return sorted(map(repr, connection.execute(text(query))))


def recorded(store: Store, night: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A night in which hosts answer as in five_nights."""
    met = list(five_nights.visits(night, HOSTS))

    def visits(*_: object) -> Iterator[Visit]:
        yield from (visit for _, visit in met)

    monkeypatch.setattr(vet, "visit_beside", visits)
    context = structs.replace(five_nights.context(night), since=StoredLook(store, "nightly"))
    with Recording(store, VetListener(), series="nightly", whole=True) as recording:
        vet.vet(
            [host for host, _ in met],
            context,
            Options(),
            fail_on=Severity.WARNING,
            save=recording.keep,
            listener=recording,
            processes=processes,
        )
    assert recording.broken is None and recording.run is not None
    store.reported_with(recording.run.id, recording.run.exit_code)
    return recording.run


def counted_calls(method: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts for which it is called, from now on."""
    hosts: list[str] = []

    def counting(recorder: Recorder, prepared: Any, *rest: Any) -> Any:
        hosts.append(prepared.report.host)
        return method(recorder, prepared, *rest)

    monkeypatch.setattr(Recorder, method.__name__, counting)
    return hosts


def troubles(run: Run) -> list[str]:
    """What the run says of its hosts beside earlier ones, but for its own id and time."""
    news = run.news
    assert isinstance(news, RunNews)
    standing = [structs.replace(one, since="") for one in news.standing]
    ended = [structs.replace(one, since="") for one in news.ended]
    return sorted(map(repr, (*standing, *ended, sorted(news.appeared), sorted(news.replaced))))


def test_the_store_is_the_same(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as apart, open_store(f"sqlite:///{tmp_path / 'here.sqlite'}") as here:
        prepared = counted_calls(Recorder.take_prepared, monkeypatch)
        for night in five_nights.NIGHTS:
            runs = [recorded(apart, night, 2, monkeypatch), recorded(here, night, 0, monkeypatch)]
            assert list(runs[0].hosts) == list(runs[1].hosts)
            assert troubles(runs[0]) == troubles(runs[1])
        assert len(prepared) == len(HOSTS) * len(five_nights.NIGHTS) - len(five_nights.UNREACHABLE)
        for table in TABLES:
            assert rows(apart, table) == rows(here, table), table
            assert rows(apart, table)
        for host in HOSTS:
            assert apart.last_evidence(host)[1] == here.last_evidence(host)[1]
