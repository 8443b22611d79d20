"""Without names, nights are compared: whole runs of one series and the same hosts."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from recorded import ended, record, report, run, unreachable

from nodevet.cli import nodevet
from nodevet.store import Store
from nodevet.store.records.model import RecordedRun, RunState

HOSTS = ("gpu001", "gpu002", "gpu003")


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


def test_e19_a_check_by_hand_does_not_count_as_a_night(store: Store, url: str) -> None:
    first, second = night(store, 0), night(store, 2, said="fail")
    hand = other(store, by_hand(3), "gpu002")
    other(store, by_hand(4), "gpu002")
    assert compared(url) == (first, second)
    shown = CliRunner().invoke(nodevet, ["diff", "--store", url]).stdout
    assert "2 newer runs skipped: incomplete, by hand or of other hosts" in " ".join(shown.split())
    assert compared(url, first, hand) == (first, hand), "if it is asked for"


@pytest.mark.parametrize("visited", [(), ("gpu001",)])
def test_e19_an_incomplete_run_does_not_count_as_a_night(
    store: Store, url: str, visited: tuple[str, ...]
) -> None:
    first, second = night(store, 0), night(store, 1, said="fail")
    begun = run(2, hosts=3)
    never = other(store, begun, *visited, state=RunState.INCOMPLETE)
    third = night(store, 3)
    assert compared(url) == (second, third)
    assert compared(url, first) == (first, third)
    assert compared(url, first, never) == (first, never)


def test_e19_a_sweep_of_a_few_hosts_does_not_count_as_a_full_night(store: Store, url: str) -> None:
    first = night(store, 0)
    night(store, 1, hosts=("gpu001",))
    third = night(store, 2, hosts=(*HOSTS, "gpu004"))
    assert compared(url) == (first, third)


def test_e19_diff_says_if_no_two_complete_nights_exist(store: Store, url: str) -> None:
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


def test_a_host_that_a_whole_run_could_not_visit_has_not_vanished(store: Store, url: str) -> None:
    """A wrong key, say: nodevet records nothing of the host, which did not change."""
    first = night(store, 0)
    second = other(store, run(1, hosts=3), *HOSTS[:2])
    third = night(store, 2)
    assert diff(url, first, second).get("vanished", []) == []
    assert diff(url, second, third).get("appeared", []) == []
    shown = CliRunner().invoke(nodevet, ["diff", first, second, "--store", url]).stdout
    assert "did not visit 1 host, not compared here" in " ".join(shown.split())


def test_a_host_that_answers_again_is_compared_with_its_last_verdicts(
    store: Store, url: str
) -> None:
    said = {"governor": "fail", "pages": "fail", "clocks": "ok"}
    record(store, 0, report(findings=said))
    for number in range(1, 8):
        record(store, number, unreachable(why="no route to host"))
    said |= {"pages": "ok", "clocks": "fail"}
    record(store, 8, report(findings=said, night=8))
    found = diff(url, run(7).id, run(8).id)
    assert [each["host"] for each in found["back"]] == ["gpu001"]
    assert [each["after"]["check"] for each in found["new"]] == ["clocks"]
    assert [each["before"]["check"] for each in found["fixed"]] == ["pages"]
    assert found["still"] == 1


def test_another_machine_that_answers_does_not_inherit_earlier_findings(
    store: Store, url: str
) -> None:
    record(store, 0, report(findings={"governor": "fail", "pages": "fail"}))
    record(store, 1, unreachable())
    record(store, 2, report(findings={"governor": "fail"}, night=2, machine_id="e" * 32))
    found = diff(url, run(1).id, run(2).id)
    assert [each["after"]["check"] for each in found["new"]] == ["governor"]
    assert "fixed" not in found or found["fixed"] == []
    record(store, 3, unreachable())
    record(store, 4, report(findings={"governor": "fail"}, night=4, machine_id="d" * 32))
    assert diff(url, run(0).id, run(1).id)["lost"], "and what came later changes no earlier night"


def test_nights_are_ordered_by_record_even_if_the_clock_was_wrong(store: Store, url: str) -> None:
    """The controller's clock was weeks ahead in the first night."""
    night(store, 25, said="fail")
    second, third = night(store, 1), night(store, 2, said="fail")
    assert compared(url) == (second, third)
    assert compared(url, second) == (second, third)
    assert store.run().id == third
    assert [each.id for each in store.runs(limit=2)] == [third, second]
