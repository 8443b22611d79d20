"""A host that was not visited has not recovered: trends have gaps there."""

import json
from typing import Any

from click.testing import CliRunner
from recorded import document, ended, record, report, run, unreachable

from nodevet.cli import nodevet
from nodevet.store import Store
from nodevet.store.records.model import RunState

BAD = {"cpu_governor": "fail"}


def partly(store: Store, night: int, *reports: Any, evidence: bytes | None = None) -> None:
    """A run that was killed before it came to gpu001."""
    begun = run(night, hosts=len(reports) + 1)
    recorder = store.begin(begun)
    for each in reports:
        recorder.take(each, evidence)
    recorder.finish(ended(begun, hosts=len(reports) + 1, state=RunState.INCOMPLETE))


def trend(url: str, *words: str) -> Any:
    asked = ["trend", *words, "--store", url, "--format", "json"]
    return json.loads(CliRunner().invoke(nodevet, asked, catch_exceptions=False).stdout)


def line(url: str, *words: str) -> list[str]:
    """What the table draws of each run."""
    shown = CliRunner().invoke(nodevet, ["trend", *words, "--store", url]).stdout
    return [row for row in shown.splitlines() if row.startswith(("fail ", "median"))]


def test_e19_a_host_that_was_not_visited_is_a_gap(store: Store, url: str) -> None:
    record(store, 0, report(findings=BAD), report("gpu002"))
    partly(store, 1, report("gpu002", night=1))
    record(store, 2, report(findings=BAD, night=2), report("gpu002", night=2))
    record(store, 3, report(findings={"cpu_governor": "ok"}, night=3), report("gpu002", night=3))
    points = trend(url, "cpu_governor")["points"]
    assert [(p["failing"], p["unread"], p["partial"]) for p in points] == [
        (1, [], False),
        (0, ["gpu001"], True),
        (1, [], False),
        (0, [], False),
    ]
    assert line(url, "cpu_governor") == ["fail  █ █▁"]
    points = trend(url, "cpu_governor", "--host", "gpu001")["points"]
    assert [(p["judged"], p["failing"], p["partial"]) for p in points] == [
        (1, 1, False),
        (0, 0, True),
        (1, 1, False),
        (1, 0, False),
    ]
    assert line(url, "cpu_governor", "--host", "gpu001") == ["fail  █ █▁"]


def test_e19_a_trend_names_hosts_that_could_not_be_judged(store: Store, url: str) -> None:
    record(store, 0, report(findings=BAD), report("gpu002"))
    record(store, 1, unreachable(night=1), report("gpu002", night=1))
    points = trend(url, "cpu_governor")["points"]
    assert [(p["failing"], p["unread"], p["partial"]) for p in points] == [
        (1, [], False),
        (0, ["gpu001"], False),
    ]
    shown = CliRunner().invoke(nodevet, ["trend", "cpu_governor", "--store", url]).stdout
    assert "NOT JUDGED" in shown and "gpu001" in shown.splitlines()[-1]
    assert line(url, "cpu_governor", "--host", "gpu001") == ["fail  █"]


def test_e19_a_run_that_did_not_visit_all_hosts_is_a_gap_in_the_trend(
    store: Store, url: str
) -> None:
    hot, cold = ({"gpus": [{"index": 0, "uuid": "u", "temperature_gpu_c": c}]} for c in (90, 30))
    record(store, 0, report(), evidence=document(gpu=hot))
    partly(store, 1, report("gpu002", night=1), evidence=document(gpu=cold))
    record(store, 2, report(night=2), evidence=document(gpu=hot))
    points = trend(url, "gpu.gpus[].temperature_gpu_c")["points"]
    assert [(p["median"], p["partial"]) for p in points] == [
        (90.0, False),
        (30.0, True),
        (90.0, False),
    ]
    (drawn,) = line(url, "gpu.gpus[].temperature_gpu_c")
    assert drawn.split("most")[1].lstrip()[1] == " "
