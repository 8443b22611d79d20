"""A fix that failed on a node twice is not planned there again without being asked for."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from shown_plan import drawn

from nodevet.fix.journal.attempts import Failure, failures, recent_failures, runs_with_failure
from nodevet.fix.journal.journal import Journal, state
from nodevet.fix.journal.records import HostBegin, HostEnd, JournalRecord, RunBegin, StepEnd
from nodevet.fix.plan.candidates import Rules, VettedNode, draft
from nodevet.fix.plan.planner import make
from nodevet.fix.plan.unplanned import unplanned_blocks
from nodevet.fixing.result import Outcome
from nodevet.model import HostReport, Status, fail

DAY = timedelta(hours=24)


def now() -> datetime:
    return datetime.now(timezone.utc)


def keep(folder: Path, *records: JournalRecord) -> None:
    with Journal.create(folder) as journal:
        journal.write(RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=1))
        for record in records:
            journal.write(record)


def ended(host: str, **outcomes: Outcome) -> HostEnd:
    steps = [StepEnd(id=f"{host}/{fix}/1", outcome=one.value) for fix, one in outcomes.items()]
    return HostEnd(host=host, outcome="", steps=tuple(steps))


def begun(host: str, machine_id: str = "m") -> HostBegin:
    return HostBegin(host=host, machine_id=machine_id, boot_id="b")


def test_attempts_of_real_runs_are_counted(world: Callable[..., Any]) -> None:
    """Twice applied to a node that does not keep the setting; the third plan leaves it out."""
    w = world("n1", "n2")
    w.boxes["n1"].refused = {world.thp: "no"}
    runs = w.folder / "runs"
    for number in (1, 2):
        found, problems = recent_failures(runs, now(), DAY)
        assert not problems and not runs_with_failure(
            found, "n1", "pages", w.boxes["n1"].machine_id
        )
        plan = w.plan()
        journal = w.journal(f"runs/plan0001-{number}")
        assert w.node(plan, journal, "n1").outcome is Outcome.FAILED
        assert w.node(plan, journal, "n2").outcome in (Outcome.CHANGED, Outcome.UNCHANGED)
    found, problems = recent_failures(runs, now(), DAY)
    machine = w.boxes["n1"].machine_id
    assert not problems
    assert runs_with_failure(found, "n1", "pages", machine) == ("plan0001-1", "plan0001-2")
    assert not runs_with_failure(found, "n1", "pages", "another machine of that name")
    assert not runs_with_failure(found, "n2", "pages", w.boxes["n2"].machine_id)
    assert not runs_with_failure(found, "n1", "other", machine)
    assert runs_with_failure(found, "n1.site", "pages", machine) == ("plan0001-1", "plan0001-2")


def test_attempts_outside_the_window_do_not_count(tmp_path: Path) -> None:
    for number in (1, 2):
        keep(tmp_path / f"p-{number}", begun("n1"), ended("n1", a=Outcome.FAILED))
    later = now() + DAY
    assert recent_failures(tmp_path, later, DAY + timedelta(minutes=5))[0]
    assert recent_failures(tmp_path, later, timedelta(hours=23)) == ((), ())


def test_attempts_of_a_long_run_count_by_the_time_of_each_failure() -> None:
    old, new = ((now() - timedelta(hours=hours)).isoformat() for hours in (30, 1))
    run = RunBegin(plan="0", path="", controller="", pid=1, at=old)
    records = [
        run,
        replace(ended("n1", a=Outcome.FAILED), at=old),
        replace(ended("n2", a=Outcome.FAILED), at=new),
    ]
    assert [one.host for one in failures(records, "r", now() - DAY)] == ["n2"]


def test_attempts_of_a_run_that_was_resumed_or_rolled_back_count_once() -> None:
    run = RunBegin(plan="0", path="", controller="", pid=1, at=now().isoformat())
    bad = ended("n1", a=Outcome.ROLLBACK_FAILED, b=Outcome.CHANGED, c=Outcome.UNKNOWN)
    back = [replace(run, kind="rollback"), ended("n1", b=Outcome.ROLLBACK_FAILED)]
    found = [(one.host, one.fix) for one in failures([run, bad, run, bad, *back], "r", now() - DAY)]
    assert found == [("n1", "a"), ("n1", "c")]


def test_attempts_of_an_unreadable_run_are_reported(tmp_path: Path) -> None:
    keep(tmp_path / "good", begun("n1"), ended("n1", a=Outcome.FAILED))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal.jsonl").write_text('{"is": "nothing"}\n')
    (tmp_path / "none").mkdir()
    (tmp_path / "note.txt").write_text("x")
    found, problems = recent_failures(tmp_path, now(), DAY)
    assert [one.run for one in found] == ["good"]
    assert len(problems) == 2
    assert "bad/journal.jsonl:1" in problems[0] and "none/journal.jsonl" in problems[1]
    assert recent_failures(tmp_path / "missing", now(), DAY) == ((), ())


def test_attempts_of_an_old_run_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    file = tmp_path / "old" / "journal.jsonl"
    file.write_text("damaged\n")
    then = time.time() - 2 * 86400
    os.utime(file, (then, then))
    assert recent_failures(tmp_path, now(), DAY) == ((), ())


@pytest.mark.parametrize("failed", [("r-1",), ("r-1", "r-2")])
def test_attempts_that_failed_twice_withhold_the_fix_and_name_their_runs(
    world: Callable[..., Any], failed: Sequence[str]
) -> None:
    from nodevet.evidence.document import decode
    from nodevet.fix.plan.planner import FixStates

    w = world("n1")
    box = w.boxes["n1"]
    report = HostReport(
        host="n1",
        status=Status.VETTED,
        baseline="b",
        machine_id=box.machine_id,
        boot_id=box.boot_id,
        findings=(fail(check="pages", expected="never", actual="always"),),
    )
    node = VettedNode(report=report, evidence=decode(box.evidence()), baseline=w.baseline)
    tried = tuple(Failure(run=run, host="n1", fix="pages") for run in failed)
    rules = Rules(id="plan0001", author="ann", now=now(), failed=tried)
    drafted = draft([node], w.catalog, rules)
    seen = tuple(box.look(resource) for resource in drafted.resources.get("n1", ()))
    proposal = make(drafted, rules, {"n1": FixStates(seen=seen)})
    if len(failed) < 2:
        assert [step.fix for step in proposal.plan.steps] == ["pages"] and not proposal.withheld
        return
    assert proposal.plan.steps == () and proposal.exit_code == 3
    why = "it failed in r-1, r-2: look at why (nodevet report), then --again"
    assert f"  pages  1 finding  n1  {why}" in drawn(unplanned_blocks(proposal))
    again = replace(rules, failed=())
    assert draft([node], w.catalog, again).candidates and state(()).run is None


def test_e25_a_failure_counts_for_its_machine_by_any_name_and_once_for_each_run() -> None:
    def failure(run: str, host: str, machine: str = "m1") -> Failure:
        return Failure(run=run, host=host, fix="pages", machine_id=machine)

    known = [failure("1", "gpu3"), failure("1", "gpu3.site"), failure("2", "10.0.0.3")]
    assert runs_with_failure(known, "gpu003", "pages", "m1") == ("1", "2")
    assert runs_with_failure(known, "gpu3", "pages", "m2") == ()
    assert runs_with_failure(known[:2], "gpu3", "pages", "m1") == ()
    unread = [failure("1", "gpu3", ""), failure("2", "gpu3", ""), failure("3", "gpu4", "")]
    assert runs_with_failure(unread, "gpu3", "pages", "m1") == ("1", "2")
    assert runs_with_failure([*known, *unread], "gpu4", "pages", "") == ()
