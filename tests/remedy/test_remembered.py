"""Plans and runs of fixes are in the history of their hosts, and need none."""

import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from nodevet.fix.events import FixListener
from nodevet.fix.journal.attempts import recent_failures, runs_with_failure
from nodevet.fix.use import remember_fixes
from nodevet.fix.use.from_store import failed_elsewhere
from nodevet.fix.use.plan import PlanRequest, rules_of
from nodevet.store import Store, engine, open_store
from nodevet.vet.use.context import open_context

Rig = Callable[..., Any]
DAY = timedelta(hours=24)
WRITTEN = "/etc/tmpfiles.d/nodevet-pages.conf"
THP = "kernel /sys/kernel/mm/transparent_hugepage/enabled"


def changes(store: Store, host: str) -> list[tuple[str, str, str, str]]:
    """Of the one setting: by what, from what to what, how it ended."""
    return [
        (each.kind, each.before, each.after, each.outcome)
        for each in store.actions(host)
        if each.resource == THP
    ]


def test_the_history_shows_what_a_run_changed_and_rolled_back(rig: Rig, url: str) -> None:
    d = rig("n1", "n2", "n3")
    d.w.boxes["n2"].refused["/etc/tmpfiles.d/nodevet-pages.conf"] = "No space left on device"
    d.w.boxes["n3"].holder = "bob"
    done = d.apply("--store", url, max_fail=5)
    assert done.code == 1 and "recorded" not in done.err, done
    with open_store(url) as store:
        (plan,) = store.plans()
        assert (plan.author, plan.hosts) == ("ann", dict.fromkeys(("n1", "n2", "n3"), ("pages",)))
        assert store.plan_text(plan.digest) == (d.run / "plan.json").read_bytes()
        (run,) = store.fix_runs()
        assert (run.kind, run.approvals, run.exit_code) == ("apply", ("ann",), 1)
        assert run.folder == str(d.run) and run.id.endswith("Z-run")
        assert {each.host: each.outcome for each in run.hosts} == d.outcomes()
        assert run.outcomes == {"changed": 1, "failed_and_rolled_back": 1, "refused": 1}
        assert changes(store, "n1") == [("apply", "always", "never", "changed")]
        assert {each.outcome for each in store.actions("n2")} == {"failed_and_rolled_back"}
        assert store.actions("n3") == []
    for _ in range(2):  # the second time there is nothing left to roll back
        assert d.rollback("--store", url).code == 0
    told = json.loads(d("history", "n1", "--store", url, "--format", "json").out)
    kinds = [(each["kind"], each["outcome"]) for each in told["events"] if each["outcome"]]
    assert kinds == [("fix", "changed"), ("rollback", "rolled_back"), ("rollback", "unchanged")]
    with open_store(url) as store:
        assert [each.kind for each in store.fix_runs()] == ["rollback", "rollback", "apply"]
        assert changes(store, "n1") == [
            ("apply", "always", "never", "changed"),
            ("rollback", "never", "always", "rolled_back"),
        ]
    shown = d("history", "n2", "--store", url)
    words = " ".join(shown.out.split())
    assert shown.code == 0 and "n2: in no recorded run" in words, shown
    assert f"failed and rolled back: plan {plan.id} of ann, approved by ann, run by" in words
    assert f"planned pages; plan {plan.id} of ann" in words and "No space left" in words
    listed = d("runs", "--fixes", "--store", url)
    assert "1 failed and rolled back, 1 refused, 1 changed" in " ".join(listed.out.split()), listed


def test_a_run_that_was_killed_is_reported_by_its_journal(rig: Rig, url: str) -> None:
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0  # nothing is recorded
    lines = (d.run / "journal.jsonl").read_text().splitlines()
    ended = next(n for n, line in enumerate(lines) if '"host-end"' in line)
    begun = next(n for n, line in enumerate(lines) if '"action-begin"' in line and n > ended)
    d.cut(begun + 1)
    d.w.boxes["n2"].__init__("n2")
    assert d.resume("--store", url).code in (0, 1)
    for _ in range(2):
        with open_store(url) as store:
            later, first = store.fix_runs()
            assert (first.exit_code, later.exit_code is None) == (None, False)
            assert {each.host: each.outcome for each in first.hosts} == {
                "n1": "changed",
                "n2": "unknown",
            }
            assert [each.host for each in later.hosts] == ["n2"]
            assert changes(store, "n1") == [("apply", "always", "never", "changed")]
            tries = [each.run for each in store.actions("n2") if each.resource == THP]
            assert tries[0] == first.id and set(tries[1:]) <= {later.id}
        assert remember_fixes.remember_run(url, d.run) == ""


def test_each_host_is_recorded_as_it_ends(
    rig: Rig, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remember_fixes, "EVERY", 0.05)
    seen: list[list[tuple[str, str, str, str]]] = []

    def fault(box: Any, call: str, when: str) -> None:
        if box.name == "n2" and not seen:
            with open_store(url) as store:
                limit = time.monotonic() + 60
                while not (found := changes(store, "n1")) and time.monotonic() < limit:
                    pass
                seen.append(found)
                (run,) = store.fix_runs()
                assert run.exit_code is None

    d = rig("n1", "n2")
    d.w.executor.fault = fault
    assert d.apply("--store", url, batch=1).code == 0
    assert seen == [[("apply", "always", "never", "changed")]]


def garbage(file: Path) -> str:
    file.write_text("no database, and long enough to be looked at" * 9)
    return "not a store of nodevet"


def newer(file: Path) -> str:
    open_store(f"sqlite:///{file}").close()
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE nodevet_schema SET version_num = '9999'")
    return "a newer nodevet has written it"


def locked(file: Path) -> str:
    open_store(f"sqlite:///{file}").close()
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    HELD.append(holder)
    return "another process has been writing to it for too long"


def folder(file: Path) -> str:
    file.mkdir()
    return "not a regular file; name another store with --store"


HELD: list[sqlite3.Connection] = []


@pytest.mark.parametrize("broken", [garbage, newer, locked, folder])
def test_a_broken_store_does_not_fail_a_run_of_fixes(
    rig: Rig, broken: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broken.sqlite"
    why = broken(file)
    monkeypatch.setattr(engine, "WAIT", 0.1)
    d = rig("n1")
    monkeypatch.setenv("NODEVET_STORE", f"sqlite:///{file}")
    done = d.apply()
    while HELD:
        HELD.pop().close()
    assert done.code == 0 and d.outcomes() == {"n1": "changed"}, done
    assert f"this run of fixes is not fully recorded: {file}: {why}" in done.err, done.err
    assert f"it is stored in {d.run}" in done.err


def small(raw: Any, _record: Any = None) -> None:
    raw.execute("PRAGMA max_page_count = 1")  # no less than it has


def fill(raw: sqlite3.Connection) -> None:
    for number in range(9999):
        raw.execute("INSERT INTO blob VALUES (?, NULL, NULL, 0, randomblob(200))", (number,))


def test_a_full_store_does_not_fail_a_run_of_fixes(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "full.sqlite"
    open_store(f"sqlite:///{file}").close()
    raw = sqlite3.connect(file, isolation_level=None)
    small(raw)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill(raw)
    raw.close()
    event.listen(Engine, "connect", small)
    d = rig("n1")
    try:
        done = d.apply("--store", f"sqlite:///{file}")
    finally:
        event.remove(Engine, "connect", small)
    assert done.code == 0 and d.outcomes() == {"n1": "changed"}, done
    assert f"not fully recorded: {file}: no space is left on its disk" in done.err, done.err


@pytest.mark.parametrize("how", ["variable", "settings"])
def test_an_invalid_store_fails_a_run_only_if_an_option_names_it(
    rig: Rig, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1")
    if how == "variable":
        monkeypatch.setenv("NODEVET_STORE", "mysql://here")
    else:
        monkeypatch.delenv("NODEVET_STORE")
        (d.project / "nodevet.toml").write_text("stor = 1\n")
    done = d.apply()
    assert done.code == 0 and "nothing is recorded: " in done.err, done
    named = d.rollback("--store", "mysql://here")
    assert named.code == 2 and d.outcomes() == {"n1": "changed"}, named


def test_store_none_overrides_the_variable_and_creates_no_store(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1")
    monkeypatch.setenv("NODEVET_STORE", f"sqlite:///{tmp_path}/h.sqlite")
    assert d.apply("--store", "none").code == 0
    assert not (tmp_path / "h.sqlite").exists()


def test_e25_failures_in_runs_kept_elsewhere_are_not_planned_again(
    rig: Rig, url: str, tmp_path: Path
) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n1"].refused[WRITTEN] = "No space left on device"
    for number in (1, 2, 3):
        d.run = tmp_path / "elsewhere" / str(number)
        said = d.apply("--store", url, "--max-fail", "2", "--override")
        assert said.code in (0, 1), said
    found = failed_elsewhere(url, d.project / "runs", datetime.now(timezone.utc) - DAY)
    machine = d.w.boxes["n1"].machine_id
    runs = tuple(str(tmp_path / "elsewhere" / str(number)) for number in (1, 2, 3))
    assert runs_with_failure(found, "n1", "pages", machine) == runs
    context = open_context(d.project, ("b",))
    for again, expected in ((False, runs), (True, ())):
        asked = PlanRequest(author="ann", again=again)
        rules = rules_of(asked, context, d.project / "runs", FixListener(), store=url)
        assert runs_with_failure(rules.failed, "n1", "pages", machine) == expected
    assert runs_with_failure(found, "n2", "pages", d.w.boxes["n2"].machine_id) == ()
    assert failed_elsewhere(url, d.run.parent, datetime.now(timezone.utc) - DAY) == ()
    assert failed_elsewhere(url, d.project / "runs", datetime.now(timezone.utc) + DAY) == ()
    assert failed_elsewhere("none", d.project / "runs", datetime.now(timezone.utc) - DAY) == ()


def test_e25_a_fix_whose_controller_was_killed_did_not_fail(
    rig: Rig, url: str, tmp_path: Path
) -> None:
    """Whatever the last record of a killed run is, the store counts no failure, as its journal
    counts none; nor does it once the run is resumed or rolled back."""
    d = rig("n1")
    assert d.apply().code == 0
    whole = d.run
    records = len((whole / "journal.jsonl").read_text().splitlines())
    for kept in range(1, records):
        d.run = tmp_path / "elsewhere" / str(kept)
        shutil.copytree(whole, d.run)
        d.cut(kept)
        assert remember_fixes.remember_run(url, d.run) == ""
    assert d.resume("--store", url).code == 0
    d.run = d.run.with_name("6")
    assert d.rollback("--store", url).code == 0
    with open_store(url) as store:
        assert "unknown" in {each.outcome for each in store.actions("n1")}
    now = datetime.now(timezone.utc)
    assert recent_failures(d.run.parent, now, DAY) == ((), ())
    assert failed_elsewhere(url, d.project / "runs", now - DAY) == ()
