"""The journal of a run: what is on the disk when its controller dies, and what it means."""

import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import (
    NAME,
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    HostBegin,
    HostEnd,
    Journal,
    JournalError,
    JournalRecord,
    RunBegin,
    RunEnd,
    Stage,
    StepFailed,
    StepLooked,
    StepReverted,
    StepReverting,
    StepVerified,
    parse,
    read,
    state,
)
from nodevet.resource import Resource, State

RUN = RunBegin(plan="a" * 64, path="plan.json", controller="ctl", pid=7, options={"canary": 1})
BEFORE = State(resource=Resource(kind="kernel", name="/sys/é"), exists=True, value="powersave\n")
AFTER = State(resource=Resource(kind="kernel", name="/sys/é"), exists=True, value="performance\n")
ONE, TWO = "gpu001/cpu_governor/1", "gpu002/cpu_governor/1"
U, D, X, V, F, R = (
    Stage.NOT_ATTEMPTED,
    Stage.UNKNOWN,
    Stage.WRITTEN,
    Stage.VERIFIED,
    Stage.FAILED,
    Stage.ROLLED_BACK,
)

STORY: tuple[tuple[JournalRecord, Stage, Stage], ...] = (  # record, and then steps ONE and TWO are
    (RUN, U, U),
    (HostBegin(host="gpu001", machine_id="m1", boot_id="b1"), U, U),
    (StepLooked(step=ONE, seen=(BEFORE,)), U, U),
    (HostBegin(host="gpu002", machine_id="m2", boot_id="b2"), U, U),
    (ActionBegin(step=ONE, action=0), D, U),
    (StepLooked(step=TWO, seen=(BEFORE,)), D, U),
    (ActionBegin(step=TWO, action=0), D, D),
    (ActionEnd(step=ONE, action=0, ok=True, code=0, output="a line\n\u2028 and \x1b[2J"), X, D),
    (ActionUnknown(step=TWO, action=0, why="the session was lost"), X, D),
    (ActionBegin(step=ONE, action=1), D, D),
    (ActionEnd(step=ONE, action=1, ok=True, code=0), X, D),
    (StepLooked(step=ONE, seen=(AFTER,)), X, D),
    (StepVerified(step=ONE, verdicts={"CPU 0": "ok"}), V, D),
    (HostEnd(host="gpu001", outcome="changed"), V, D),
    (RUN, V, D),
    (HostBegin(host="gpu002", machine_id="m2", boot_id="b3"), V, D),
    (ActionBegin(step=TWO, action=0), V, D),
    (ActionEnd(step=TWO, action=0, ok=False, code=1, output="no space"), V, F),
    (StepFailed(step=TWO, why="no space"), V, F),
    (StepReverting(step=TWO), V, D),
    (StepReverted(step=TWO, ok=True), V, R),
    (HostEnd(host="gpu002", outcome="failed_and_rolled_back"), V, R),
    (RunEnd(outcome="stopped"), V, R),
)
RECORDS = tuple(record for record, _, _ in STORY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


def told(folder: Path, *records: JournalRecord) -> Path:
    """The file of a journal with these records."""
    with Journal.create(folder) as journal:
        for record in records:
            journal.write(record)
    return folder / NAME


def test_records_are_read_as_they_were_written(folder: Path) -> None:
    path = told(folder, *RECORDS)
    assert [type(record) for record in read(path)] == [type(record) for record in RECORDS]
    assert read(folder) == read(path)
    done = read(path)[7]
    assert isinstance(done, ActionEnd)
    assert done.output == "a line\n\u2028 and \x1b[2J"
    assert done.at.endswith("+00:00")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_cut_at_any_byte_gives_the_state_of_the_whole_lines(folder: Path) -> None:
    data = told(folder, *RECORDS).read_bytes()
    assert data.count(b"\n") == len(STORY)
    for size in range(len(data) + 1):
        records, torn = parse(data[:size])
        whole = data[:size].count(b"\n")
        assert len(records) == whole
        assert data[:size].endswith(torn)
        assert b"\n" not in torn
        found = state(records)
        _, one, two = STORY[whole - 1] if whole else (None, U, U)
        assert (found.step(ONE).stage, found.step(TWO).stage) == (one, two), size
        for step in (ONE, TWO):
            begun = any(isinstance(it, ActionBegin) and it.step == step for it in records)
            back = found.step(step).stage is Stage.ROLLED_BACK
            assert found.step(step).touched == (begun and not back)
            if begun:
                assert found.step(step).seen == (BEFORE,)


def test_a_cut_journal_continues_from_its_whole_lines(folder: Path, tmp_path: Path) -> None:
    data = told(folder, *RECORDS[:7]).read_bytes()
    path = tmp_path / NAME
    kept = path.with_name(f"{NAME}.torn")
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    cuts = {0, 1, *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])}
    for size in sorted(cuts | set(range(0, len(data), 37))):
        path.write_bytes(data[:size])
        kept.unlink(missing_ok=True)
        with Journal.open(path) as journal:
            assert journal.records == parse(data[:size])[0]
            journal.write(journal.records[0] if journal.records else RUN)
            torn = journal.torn
        assert len(read(path)) == data[:size].count(b"\n") + 1
        assert kept.exists() == bool(torn)
        if torn:
            assert kept.read_bytes() == torn + b"\n"
            assert data[:size].endswith(torn)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0\0\0",
        b"{",
        b"[]",
        b'{"is":"action-begin","step":"x"}',
        b'{"is":"undoing","step":"x"}',
        b'{"is":"action-begin","step":"x","action":"0"}',
        b"\xff",
        b'{"is":"run-end","outcome":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_a_complete_but_malformed_line_is_an_error(folder: Path, line: bytes) -> None:
    path = told(folder, *RECORDS[:3])
    whole = path.read_bytes()
    first, rest = whole.split(b"\n", 1)
    for data in (first + b"\n" + line + b"\n" + rest, whole + line + b"\n"):
        path.write_bytes(data)
        number = 2 if data.endswith(rest) else 4
        for take in (read, Journal.open):
            with pytest.raises(JournalError, match=f"{NAME}:{number}: not a record of a journal"):
                take(path)
        assert path.read_bytes() == data


def test_another_file_is_not_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'{"is":"run-end","outcome":"x"}\n')
    with pytest.raises(JournalError, match="x:1: the first record is not a run"):
        read(path)
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(JournalError, match="cannot be opened: No such file"):
        Journal.open(tmp_path / "none")


def test_a_folder_keeps_one_run(folder: Path) -> None:
    path = told(folder, RUN)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="a run is already stored there"):
        Journal.create(folder)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be made"):
        Journal.create(tmp_path / "file" / "run")


def test_a_run_has_one_owner(folder: Path) -> None:
    with Journal.create(folder) as journal:
        journal.write(RUN)
        with pytest.raises(JournalError, match="another nodevet works on this run"):
            Journal.open(folder)
        assert len(read(folder)) == 1
    with Journal.open(folder) as journal:
        journal.write(RUN)
    assert state(read(folder)).resumed == 1


def test_a_closed_journal_refuses_records(folder: Path) -> None:
    journal = Journal.create(folder)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.write(RUN)


def test_the_end_of_a_long_output_is_kept(folder: Path) -> None:
    path = told(
        folder,
        RUN,
        ActionEnd(step=ONE, action=0, ok=False, code=1, output="é" * 5000 + "the reason"),
        ActionEnd(step=ONE, action=1, ok=False, code=1, output="not UTF-8: \udcff"),
    )
    _, long, odd = read(path)
    assert isinstance(long, ActionEnd)
    assert isinstance(odd, ActionEnd)
    assert long.output.endswith("éthe reason")
    assert 4000 < len(long.output.encode()) <= 4096
    assert odd.output == "not UTF-8: \\udcff"


def test_invalid_json_is_refused_before_it_is_written(folder: Path) -> None:
    with Journal.create(folder) as journal:
        journal.write(RUN)
        with pytest.raises(JournalError, match="cannot be written as JSON"):
            journal.write(StepFailed(step=ONE, why="\udcff"))
        journal.write(RunEnd(outcome="changed"))
    assert len(read(folder)) == 2


def test_records_of_many_threads_are_whole(folder: Path) -> None:
    with Journal.create(folder) as journal:
        journal.write(RUN)

        def work(name: str) -> None:
            for action in range(20):
                journal.write(ActionEnd(step=name, action=action, ok=True, output=name * 400))

        threads = [threading.Thread(target=work, args=(str(name),)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = state(read(folder))
    assert all(found.step(str(name)).done == tuple(range(20)) for name in range(5))


FULL = """
import resource, sys
from pathlib import Path
from nodevet.fix.journal.journal import *
journal = Journal.open(Path(sys.argv[1]))
size = journal.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
for _ in range(2):
    try:
        journal.write(ActionEnd(step="x", action=0, ok=True, output="o" * 4000))
    except JournalError as error:
        print(error)
"""


def test_a_full_disk_leaves_whole_lines_and_ends_the_writing(folder: Path) -> None:
    path = told(folder, *RECORDS[:5])
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL, path], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{path}: cannot be written: File too large"] * 2
    assert path.read_bytes() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


WRITER = """
import os
import sys
from pathlib import Path
from nodevet.fix.journal.journal import *

def say(*words):  # in one write (print takes one for each word with PYTHONUNBUFFERED=1)
    os.write(1, f"{' '.join(words)}\\n".encode())

journal = Journal.create(Path(sys.argv[1]))
journal.write(RunBegin(plan="p", path="p", controller="c", pid=1))
action = 0
while True:
    say(str(action), "will")
    journal.write(ActionBegin(step="s", action=action))
    say(str(action), "does")
    journal.write(ActionEnd(step="s", action=action, ok=True, output="o" * 4096))
    say(str(action), "did")
    action += 1
"""


@pytest.mark.parametrize("seed", range(8))
def test_the_journal_of_a_killed_controller_contains_its_actions(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout
    with writer, writer.stdout as said:
        for _ in range(chance.randrange(1, 40)):
            line = said.readline()
        writer.send_signal(signal.SIGKILL)
        line = (said.read().splitlines() or [line])[-1]
    action, word = line.split()
    found = state(read(folder)).step("s")
    with Journal.open(folder) as journal:  # the lock died with its owner
        assert state(journal.records).step("s") == found
    number = int(action)
    if word in ("does", "did"):
        assert found.touched
    if word == "does":
        assert found.doing == number or found.done[-1] == number
    elif word == "did":
        assert found.done == tuple(range(number + 1))
        assert found.stage is Stage.WRITTEN
    else:
        assert found.done == tuple(range(number))
        assert found.doing in (None, number)


# --- what records mean ---------------------------------------------------------------------


def test_nothing_was_done_before_the_first_record() -> None:
    found = state(())
    assert found.run is None
    assert found.step(ONE).stage is Stage.NOT_ATTEMPTED
    assert found.host("gpu001") is None


def test_the_state_follows_from_all_records() -> None:
    found = state(RECORDS)
    assert found.run == RUN
    assert (found.resumed, found.outcome) == (1, "stopped")
    first, second = found.host("gpu001"), found.host("gpu002")
    assert first and (first.machine_id, first.boot_id, first.outcome) == ("m1", "b1", "changed")
    assert second and (second.boot_id, second.outcome) == ("b3", "failed_and_rolled_back")
    one = found.step(ONE)
    assert (one.done, one.seen, one.after) == ((0, 1), (BEFORE,), (AFTER,))
    assert one.verdicts == {"CPU 0": "ok"}
    assert state(RECORDS[:16]).host("gpu002").outcome is None  # type: ignore[union-attr]
    assert state(RECORDS[:16]).outcome is None


def test_an_action_without_an_end_record_is_named() -> None:
    found = state((RUN, ActionBegin(step=ONE, action=0), ActionEnd(step=ONE, action=0, ok=True)))
    assert (found.step(ONE).doing, found.step(ONE).done) == (None, (0,))
    found = state((RUN, StepLooked(step=ONE, seen=()), ActionBegin(step=ONE, action=1)))
    assert (found.step(ONE).doing, found.step(ONE).seen) == (1, ())
    found = state((RUN, ActionBegin(step=ONE, action=1), ActionEnd(step=ONE, action=0, ok=True)))
    assert (found.step(ONE).stage, found.step(ONE).doing) == (Stage.UNKNOWN, 1)
    found = state((RUN, ActionBegin(step=ONE, action=1), StepFailed(step=ONE, why="lost")))
    assert (found.step(ONE).stage, found.step(ONE).doing) == (Stage.FAILED, 1)


def test_a_refused_step_is_untouched() -> None:
    step = state(
        (RUN, StepLooked(step=ONE, seen=(BEFORE,)), StepFailed(step=ONE, why="stale"))
    ).step(ONE)
    assert (step.stage, step.touched, step.why) == (Stage.FAILED, False, "stale")


def test_the_earlier_state_is_the_one_before_the_first_action() -> None:
    story = (RUN, StepLooked(step=ONE, seen=(BEFORE,)), ActionBegin(step=ONE, action=0))
    again = (*story, RUN, StepLooked(step=ONE, seen=(AFTER,)), ActionBegin(step=ONE, action=0))
    assert state(again).step(ONE).seen == (BEFORE,)
    assert state(again).step(ONE).after is None
    taken_back = (*again, StepReverting(step=ONE), StepReverted(step=ONE, ok=True))
    fresh = state((*taken_back, StepLooked(step=ONE, seen=(AFTER,)))).step(ONE)
    assert (fresh.seen, fresh.touched, fresh.stage) == ((AFTER,), False, Stage.NOT_ATTEMPTED)


def test_a_started_rollback_is_unknown_until_it_has_ended() -> None:
    verified = (
        RUN,
        StepLooked(step=ONE, seen=(BEFORE,)),
        ActionBegin(step=ONE, action=0),
        ActionEnd(step=ONE, action=0, ok=True),
        StepVerified(step=ONE),
    )
    begun = state((*verified, StepReverting(step=ONE))).step(ONE)
    assert (begun.stage, begun.rolling_back, begun.done) == (Stage.UNKNOWN, True, ())
    failed = state(
        (*verified, StepReverting(step=ONE), StepReverted(step=ONE, ok=False, why="changed since"))
    ).step(ONE)
    assert (failed.stage, failed.touched, failed.why) == (Stage.FAILED, True, "changed since")
    assert failed.seen == (BEFORE,)


def test_a_journal_of_two_plans_is_refused() -> None:
    other = RunBegin(plan="b" * 64, path="other.json", controller="ctl", pid=8)
    with pytest.raises(JournalError, match="a run has one plan"):
        state((RUN, other))


def test_a_record_of_a_later_nodevet_with_more_fields_is_read(folder: Path) -> None:
    path = told(folder, RUN)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "colour": "red"}) + "\n")
    assert len(read(path)) == 1


@pytest.mark.parametrize("name", [NAME, "plan.json"])
def test_nothing_waits_for_a_special_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises((JournalError, RunError), match="not a regular file"):
        read(tmp_path) if name == NAME else RunFolder(tmp_path).plan()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises((JournalError, RunError), match="not a regular file"):
        read(tmp_path) if name == NAME else RunFolder(tmp_path).plan()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_e03_no_run_is_kept_in_a_folder_that_another_user_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /tmp, between the look at the folder and its making."""
    run = tmp_path / "run"

    def overtake(path: Path) -> None:
        path.mkdir()
        os.chown(path, 65534, 65534)

    monkeypatch.setattr("nodevet.fix.journal.journal._make_folder", overtake)
    with pytest.raises(JournalError, match="belongs to another user"):
        Journal.create(run)
    assert not list(run.iterdir())
