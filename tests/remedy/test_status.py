"""`nodevet status` over journals of every kind: nothing is locked, nothing is written."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.fix.journal import journal, owner
from nodevet.fix.journal.journal import RunBegin
from nodevet.fix.journal.owner import Controller
from nodevet.fix.standing import RunStanding
from nodevet.fix.status_sheet import status_sheet
from nodevet.fix.use.status import newest_run, status
from nodevet.sheet.terminal import render

GONE = 4194304  # above the largest process id that Linux gives


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Every file of the folder is as it was, to the nanosecond, and so are their names."""

    def seen() -> dict[str, tuple[int, int]]:
        paths = [folder, *folder.rglob("*")]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    before = seen()
    yield
    assert seen() == before


def ended(d: Any) -> int:
    """The line of the journal after the first host's end."""
    lines = (d.run / "journal.jsonl").read_text().splitlines()
    return 1 + next(n for n, line in enumerate(lines) if json.loads(line)["is"] == "host-end")


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller of every run was another process, which is gone."""
    patched = owner._process_state
    monkeypatch.setattr(owner, "_process_state", lambda file, pid: patched(file, GONE))


def test_a_run_that_ended(rig: Callable[..., Any]) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    with unchanged(d.run):
        said = d("status", d.run)
    assert said.code == 0 and not said.err, said
    lines = said.out.splitlines()
    assert lines[0].endswith(": apply of plan p, ended") or lines[0].endswith(", ended")
    assert "CHANGED  n[1-2]" in lines and lines[-1] == f"undo: nodevet rollback {d.run}"
    with unchanged(d.run):
        told = d("status", d.run, "--format", "json")
    document = json.loads(told.out)
    jsonschema.validate(document, kinds()["status"].schema(Project()))
    assert (told.code, document["exit_code"], document["standing"]) == (0, 0, "ended")
    assert (document["in_hand"], document["waiting"]) == ([], [])
    assert [host["host"] for host in document["result"]["hosts"]] == ["n1", "n2"]
    watched = d("status", d.run, "--format", "json", "--watch")
    assert watched.out.count("\n") == 1 and json.loads(watched.out) == document
    assert d.rollback().code == 0
    said = d("status", d.run)
    assert said.code == 0 and ": rollback of plan" in said.out and "ROLLED BACK  n[1-2]" in said.out
    assert "undo" not in said.out


def test_a_failure_names_the_next_step(rig: Callable[..., Any], world: Any) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n1"].refused[world.thp] = "Invalid argument"
    assert d.apply(canary=1).code == 1
    said = d("status", d.run)
    assert said.code == 1 and "stopped: the canary failed" in said.out, said
    assert "next: n1: remove the cause, then plan again: nodevet plan" in said.out
    assert f"next: n2: remove the cause of the failure, then apply the plan there: nodevet apply "\
        f"{d.run}/plan.json" in said.out  # fmt: skip


@pytest.mark.usefixtures("killed")
def test_status_of_a_killed_run_says_where_it_ended_and_how_to_resume(
    rig: Callable[..., Any],
) -> None:
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0
    full = (d.run / "journal.jsonl").read_bytes()
    first, total = ended(d), d.lines
    for lines in range(1, total):
        (d.run / "journal.jsonl").write_bytes(full)
        d.cut(lines)
        with unchanged(d.run):
            said = d("status", d.run)
        assert said.code == 3, (lines, said)
        assert f"interrupted (process {GONE} has ended)" in said.out
        assert f"next: nodevet apply --resume {d.run}" in said.out
        left = "UNKNOWN" in said.out or "CHANGED" in said.out
        assert (f"or undo: nodevet rollback {d.run}" in said.out) == left, (lines, said)
        assert ("WAS AT" in said.out) == (lines not in (1, first, total - 1)), (lines, said)
        done = any(line.split() == ["CHANGED", "n1"] for line in said.out.splitlines())
        assert done == (lines >= first and lines < total - 1), (lines, said.out)
    d.cut(first + 3)  # n2: begun, looked at, an action begun
    said = d("status", d.run)
    assert "1/1 pages: writing" in said.out, said
    assert "UNKNOWN" in said.out and "reads 1 interrupted host first" in said.out


@pytest.mark.usefixtures("killed")
def test_a_torn_last_line_is_not_touched(rig: Callable[..., Any]) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    d.cut(4)
    with (d.run / "journal.jsonl").open("ab") as file:
        file.write(b'{"is": "action-')
    with unchanged(d.run):
        assert d("status", d.run).code == 3


def test_a_running_run_is_not_disturbed(rig: Callable[..., Any]) -> None:
    """Its lock is held; the status neither needs nor takes it, and a resume still can."""
    d = rig("n1", "n2")
    assert d.apply(batch=1).code == 0
    d.cut(ended(d) + 2)
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, d.run / "journal.jsonl"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with held:
        assert held.stdin and held.stdout
        assert held.stdout.readline() == b"held\n"
        with unchanged(d.run):
            said = d("status", d.run)
        assert said.code == 4 and f"goes on (process {held.pid})" in said.out, said
        assert "IN PROGRESS  n2  " in said.out and "CHANGED      n1" in said.out
        assert "UNKNOWN" not in said.out and "killed" not in said.out
        assert "next: nothing: still running" in said.out
        assert d.resume().code == 2, "the lock is its controller's"
        held.stdin.close()
    assert d.resume().code == 0
    assert d("status", d.run).code == 0


HOLD = """\
import fcntl, sys
with open(sys.argv[1], "ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_rollback_that_was_killed(rig: Callable[..., Any], monkeypatch: Any) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    before = d.lines
    assert d.rollback().code == 0
    d.cut(before + 3)
    monkeypatch.setattr(owner, "_process_state", lambda file, pid: (Controller.GONE, "gone"))
    said = d("status", d.run)
    assert said.code == 3 and ": rollback of plan" in said.out, said
    assert f"next: nodevet rollback {d.run}" in said.out and "or undo" not in said.out


def test_a_journal_that_was_changed_is_an_error_that_says_where(rig: Callable[..., Any]) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    file = d.run / "journal.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"changed"', b'"unchanged"', 1))
    said = d("status", d.run)
    assert said.code == 2 and not said.out, said
    assert f"{file}:" in said.err and "look at the nodes of this run by hand" in said.err
    file.write_bytes(b"not JSON\n" + whole)
    assert d("status", d.run).code == 2
    file.write_bytes(b"")
    said = d("status", d.run)
    assert said.code == 2 and "the run ended before it started" in said.err
    file.unlink()
    said = d("status", d.run)
    assert said.code == 2 and "Traceback" not in said.err, said


def test_status_without_a_name_shows_the_newest_run(
    rig: Callable[..., Any], tmp_path: Path
) -> None:
    d = rig("n1")
    said = d("status")
    assert said.code == 2 and "no run is stored there" in said.err, said
    assert d.apply("--run", d.project / "runs" / "one").code == 0
    second = d("apply", d.project / "plan.json", "-b", "b", "--run", d.project / "runs" / "two")
    assert second.code == 0, second
    os.utime(d.project / "runs" / "one" / "journal.jsonl", (1, 1))
    assert newest_run(d.project / "runs")[0].name == "two"
    d.run = d.project / "runs" / "one"
    d.cut(d.lines - 1)
    os.utime(d.run / "journal.jsonl", (1, 1))
    said = d("status")
    assert said.code == 0 and said.out.startswith("runs/two: apply"), said
    assert said.err == "nodevet: runs/one: has no end either: nodevet status runs/one\n"


def test_the_controller_of_a_run_is_known(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    file = d.run / journal.NAME
    begun = next(record for record in journal.read(d.run) if isinstance(record, RunBegin))
    assert owner.controller_state(file, begun)[0] is Controller.GONE, "this process has closed it"
    elsewhere = replace(begun, controller="ops9")
    assert owner.controller_state(file, elsewhere) == (
        Controller.UNKNOWN, f"it ran on ops9, process {begun.pid}: run status there",
    )  # fmt: skip
    rebooted = replace(begun, boot_id="another")
    assert owner.controller_state(file, rebooted)[0] is Controller.GONE
    with file.open("ab") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        assert owner.controller_state(file, elsewhere) == (
            Controller.RUNNING,
            f"process {os.getpid()}",
        )
        monkeypatch.setattr(owner, "LOCKS", Path("/nowhere"))
        assert owner.controller_state(file, begun)[0] is Controller.RUNNING, "it has the file open"
    d.cut(d.lines - 1)
    monkeypatch.setattr(owner, "controller_state", lambda *_: (Controller.UNKNOWN, "ask ops9"))
    found = status(d.run)
    assert (found.standing, found.exit_code) == (RunStanding.UNKNOWN, 3)
    shown = render(status_sheet(found, now=datetime.now(timezone.utc)))
    assert f"if its controller is gone: nodevet apply --resume {d.run}" in shown


def test_status_names_the_hosts_that_the_drain_hook_did_not_give_back(
    rig: Callable[..., Any], tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\necho nodevet-hook: undrain\ntest $NODEVET_HOOK != undrain\n")
    hook.chmod(0o755)
    d = rig("n1", "n2").by_bob()
    d.apply(canary=1, batch=2, verify_reboot=True, drain_hook=str(hook))
    found = status(d.run)
    assert found.drained == ("n1",)  # the canary alone is rebooted
    shown = render(status_sheet(found, now=datetime.now(timezone.utc)))
    assert "still drained by this run: n1" in shown
