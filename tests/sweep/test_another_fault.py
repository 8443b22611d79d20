"""Another fault on the same part is new; the same one with another figure is not."""

from pathlib import Path
from typing import Any

import pytest
from answering_fleet import BASELINE, AnsweringFleet
from msgspec.structs import replace
from recorded import record, report

from nodevet.model import Finding, HostReport, Subject, fail
from nodevet.model.changes import News
from nodevet.store import open_store

pytestmark = pytest.mark.timeout(300)
GPU = Subject(kind="gpu", id="0", uuid="GPU-1")
COUNTS = {"corrected": 0, "fatal": 0}
NIGHTS = (  # what is expected, what a night found, what the next one found, whether that is new
    ([], [48], [79], True),
    ([], [48], [48, 79], True),
    ([], [48, 79], [48], False),
    ([], ["hw_slowdown"], ["hw_slowdown", "hw_thermal_slowdown"], True),
    ([], ["python3 (pid 7, 20 MiB)"], ["python3 (pid 9, 70 MiB)"], False),
    ([], ["python3 (pid 7, 20 MiB)"], ["all_reduce_perf (pid 7, 20 MiB)"], True),
    (COUNTS, {"corrected": 9, "fatal": 0}, {"corrected": 12, "fatal": 0}, False),
    (COUNTS, {"corrected": 9, "fatal": 0}, {"corrected": 9, "fatal": 1}, True),
    (None, {"corrected": 9}, {"fatal": 1}, True),
    ("none", "500 corrected", "2 uncorrected", True),
    ("at most 9 corrected a day", "corrected 90 in 1 d", "corrected ×120", False),
    ("at most 85", "91 °C", "97 °C", False),
    (0, 3, 4, False),
    (700, 490, 500, False),
    ("performance", "powersave", "ondemand", False),
    ("x16", "x8", "x4", False),
)


def host(number: int, night: int, *findings: Finding) -> HostReport:
    made = report(f"h{number}", {}, night=night, machine_id=f"{number:032x}")
    return replace(made, findings=findings)


def found(expected: Any, actual: Any) -> Finding:
    return replace(fail(GPU, expected=expected, actual=actual), check="it")


def test_a_finding_that_names_another_fault_is_new(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/h.sqlite") as store:
        for night in (0, 1):
            told = record(
                store,
                night,
                *(host(n, night, found(c[0], c[1 + night])) for n, c in enumerate(NIGHTS)),
            )
    for case, news in zip(NIGHTS, told, strict=True):
        (each,) = news.findings
        expected = (News.NEW, "2026-11-02") if case[3] else (News.CHANGED, "2026-11-01")
        assert (each.news, each.since[:10]) == expected, case
        assert each.before is not None and each.before.actual == case[1]


def test_two_faults_of_one_part_are_tracked_separately(tmp_path: Path) -> None:
    """A part of which two findings tell, and one of them alone the next night."""
    was = (found(None, {"corrected": 9}), found(None, {"fatal": 1}))
    with open_store(f"sqlite:///{tmp_path}/h.sqlite") as store:
        record(store, 0, host(1, 0, *was))
        (news,) = record(store, 1, host(1, 1, found(None, {"fatal": 2})))
    assert [(each.news, each.before.actual) for each in news.findings if each.before] == [
        (News.CHANGED, {"fatal": 1}),
        (News.GONE, {"corrected": 9}),
    ]


def logged(code: int, count: int = 1) -> Any:
    """A GPU's Xid, an hour before the visit; uptime goes on from night to night."""

    def change(sections: dict[str, Any]) -> None:
        up = sections["host"]["data"]["uptime_s"]
        event = {"kind": "xid", "code": code, "bus_id": "0000:19:00.0", "count": count}
        event |= {"first_s": up - 3600, "last_s": up - 3600, "times_s": [up - 3600]}
        log = {"complete": True, "since_s": 0.0, "covered_s": up, "events": [event]}
        sections["kernel_log"]["data"].update(log)

    return change


def test_another_xid_on_the_same_gpu_fails_a_gate_for_what_is_new(fleet: AnsweringFleet) -> None:
    (fleet.folder / "site.yaml").write_text(BASELINE + "  xid: {}\n")
    fleet.run("sweep")
    fleet.night({"gpu001": logged(79)})
    assert fleet.run("sweep", "--fail-on", "new").returncode == 1
    fleet.night({"gpu001": logged(79, count=2)})
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0
    fleet.night({"gpu001": logged(48)})
    done = fleet.run("sweep", "--fail-on", "new")
    assert (done.returncode, "new since last run: 1" in done.stdout) == (1, True)
    assert "NEW" in next(row for row in done.stdout.splitlines() if "48" in row)
