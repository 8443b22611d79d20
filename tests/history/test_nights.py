"""Without names, nights are compared: whole runs of one series and the same hosts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from recorded import ended, record, report, run

from nodevet.cli import nodevet
from nodevet.store import Store, open_store
from nodevet.store.records.model import RecordedRun, RunState

HOSTS = ("gpu001", "gpu002", "gpu003")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.sqlite'}"
    found: str = request.getfixturevalue("postgres").database()
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def night(store: Store, number: int, hosts: tuple[str, ...] = HOSTS, said: str = "ok") -> str:
    reports = [report(host, {"governor": said}, night=number) for host in hosts]
    record(store, number, *reports)
    return run(number).id


def other(
    store: Store, begun: RecordedRun, *hosts: str, state: RunState = RunState.COMPLETE
) -> str:
    """A run that is no night of the sweep."""
    recorder = store.begin(begun)
    for host in hosts:
        recorder.take(report(host, {"governor": "fail"}, night=5), None)
    recorder.finish(ended(begun, state=state, hosts=max(begun.hosts, len(hosts))))
    return begun.id


def by_hand(number: int, **rest: Any) -> RecordedRun:
    """Of the night after so many, at two."""
    at = f"2026-11-{number + 1:02d}T02:00:00+00:00"
    name = f"202611{number + 1:02d}T020000.000Z-{number:08x}"
    return run(number, series="", started=at, **{"id": name, **rest})


def diff(url: str, *refs: str, code: int = 0) -> Any:
    asked = ["diff", *refs, "--store", url, "--format", "json"]
    done = CliRunner().invoke(nodevet, asked)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.output + str(done.exception)


def compared(url: str, *refs: str) -> tuple[str, str]:
    found = diff(url, *refs)
    return found["before"]["id"], found["after"]["id"]


def test_e19_a_check_of_some_hosts_at_two_is_no_night(store: Store, url: str) -> None:
    first, second = night(store, 0), night(store, 2, said="fail")
    hand = other(store, by_hand(3), "gpu002")
    other(store, by_hand(4), "gpu002")
    assert compared(url) == (first, second)
    shown = CliRunner().invoke(nodevet, ["diff", "--store", url]).stdout
    assert "2 newer runs skipped: incomplete, by hand or of other hosts" in " ".join(shown.split())
    assert compared(url, first, hand) == (first, hand), "if it is asked for"


@pytest.mark.parametrize("visited", [(), ("gpu001",)])
def test_e19_a_run_that_was_not_carried_out_is_no_night(
    store: Store, url: str, visited: tuple[str, ...]
) -> None:
    first, second = night(store, 0), night(store, 1, said="fail")
    begun = run(2, hosts=3)
    never = other(store, begun, *visited, state=RunState.INCOMPLETE)
    third = night(store, 3)
    assert compared(url) == (second, third)
    assert compared(url, first) == (first, third)
    assert compared(url, first, never) == (first, never)


def test_e19_a_sweep_of_a_few_hosts_is_no_night_of_the_whole(store: Store, url: str) -> None:
    first = night(store, 0)
    night(store, 1, hosts=("gpu001",))
    third = night(store, 2, hosts=(*HOSTS, "gpu004"))
    assert compared(url) == (first, third)


def test_e19_without_two_such_nights_it_says_so(store: Store, url: str) -> None:
    night(store, 0)
    night(store, 1, hosts=("gpu009",))
    said = diff(url, code=1)
    assert "no two complete runs of nightly visited the same hosts" in said
    assert "no later complete run of its series" in diff(url, run(1).id, code=1)


def test_e19_without_a_sweep_checks_by_hand_are_compared(store: Store, url: str) -> None:
    first = other(store, by_hand(0, hosts=3), *HOSTS)
    second = other(store, by_hand(1, hosts=3), *HOSTS)
    assert compared(url) == (first, second)
    assert replace(store.run(first), seconds=None).series == ""
