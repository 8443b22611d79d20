"""A sweep as a scheduler's hook makes it: a function call, which prints nothing."""

import json
import os
from pathlib import Path

import pytest
from answering_fleet import AnsweringFleet, capped

from nodevet.model.run import Run
from nodevet.settings import settings
from nodevet.store import open_store, preparing
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.sweep import Swept, sweep
from nodevet.vet.use.sweep_lock import HeldError, locked
from nodevet.vet.use.sweep_order import SweepOrder, choose_sweep


class Heard(VetListener):
    """Keeps what a sweep tells."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.texts: list[str] = []
        self.run: Run | None = None

    def advanced(self, host: str) -> None:
        self.hosts.append(host)

    def ended(self, run: Run) -> None:
        self.run = run

    def warned(self, text: str) -> None:
        self.texts.append(f"warning {text}")

    def noted(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def order(fleet: AnsweringFleet, monkeypatch: pytest.MonkeyPatch) -> SweepOrder:
    monkeypatch.setenv("XDG_STATE_HOME", str(fleet.folder / "state"))
    monkeypatch.chdir("/")
    fleet.settings(
        'outputs = { json = "last.json", jsonl = "last.jsonl" }\nheartbeat = "beat.prom"\n'
    )
    return choose_sweep(settings(fleet.folder / "nodevet.toml"), "nightly", {})


def test_a_sweep_function_call_records_reports_and_prints_nothing(
    fleet: AnsweringFleet, order: SweepOrder, capfd: pytest.CaptureFixture[str]
) -> None:
    heard = Heard()
    first: Swept = sweep(order, heard)
    assert first.exit_code == 0
    assert sorted(heard.hosts) == [f"gpu{number:03}" for number in range(1, 7)]
    assert heard.texts == ["nightly: the first recorded sweep; nothing is marked as new"]
    assert heard.run is not None and heard.run.id == first.run.id
    fleet.night({"gpu003": capped})
    second = sweep(order)
    assert second.exit_code == 1
    assert second.run.news and second.run.news.run == first.run.id
    assert json.loads((fleet.folder / "last.json").read_text())["id"] == second.run.id
    assert len((fleet.folder / "last.jsonl").read_text().splitlines()) > 6
    assert 'exit_code{sweep="nightly"} 1' in (fleet.folder / "beat.prom").read_text()
    assert capfd.readouterr() == ("", "")


def test_a_second_sweep_call_names_the_sweep_that_holds_the_lock(
    order: SweepOrder, tmp_path: Path
) -> None:
    with locked(order.locks, "another sweep"), pytest.raises(HeldError, match="another sweep"):
        sweep(order)
    assert not os.path.lexists(order.site.path("last.json"))


def test_a_first_sweep_decodes_its_evidence_only_once(
    order: SweepOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What judging has decoded is what the store reads parts and counters from."""
    documents: list[bytes] = []
    monkeypatch.setattr(preparing, "open_evidence", documents.append)
    assert sweep(order).exit_code == 0
    assert documents == []
    with open_store(order.store or None, create=False) as store:
        assert store.parts()
