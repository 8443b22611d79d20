"""A disk of the controller that is full, or a file that cannot be written: no node is cut off."""

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix.journal import space
from nodevet.fix.journal.journal import RESERVE, Journal, read, state
from nodevet.fix.rollout.drain_hook import DrainHook

CommandRig = Any
NEWNS = 0x00020000  # unshare(2)


def full(patch: pytest.MonkeyPatch, number: int, *, code: int, times: int) -> None:
    """Let the writes of journals fail from one on, so many times."""
    append, calls = Journal._append, 0

    def failing(self: Journal, line: bytes) -> None:
        nonlocal calls
        calls += 1
        if number <= calls < number + times:
            raise OSError(code, os.strerror(code))
        append(self, line)

    patch.setattr(Journal, "_append", failing)


@pytest.mark.parametrize("number", range(1, 18))
def test_d6_a_journal_that_cannot_be_written_leaves_no_node_half_changed(
    rig: Callable[..., CommandRig], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    d = rig("n1", "n2")
    plan = d.plan(batch=1)
    before = {name: box.everything() for name, box in d.w.boxes.items()}
    with monkeypatch.context() as patch:
        full(patch, number, code=errno.EIO, times=999)
        said = d.apply(plan=plan)
    if number == 1:
        assert said.code == 2 and not d.w.boxes["n1"].writes, said
        return
    assert said.code == 3 and "n1" in said.out and "n2" in said.out, said
    assert f"nodevet apply --resume {d.run}" in said.err and "Input/output error" in said.out
    first = state(read(d.run)).step("n1/pages/1").stage.value
    as_it_was = d.w.boxes["n1"].everything() == before["n1"]
    assert as_it_was is (first != "verified"), (first, said.out)
    assert d.report().code == 3
    resumed = d.resume()
    assert resumed.code in (0, 1), resumed
    assert d.rollback().code == 0
    assert {name: box.everything() for name, box in d.w.boxes.items()} == before


@pytest.mark.parametrize("number", range(3, 14))
def test_d6_reserved_disk_space_lets_nodes_in_progress_finish(
    rig: Callable[..., CommandRig], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    d = rig("n1", "n2")
    plan = d.plan(batch=1)
    with monkeypatch.context() as patch:
        full(patch, number, code=errno.ENOSPC, times=1)
        said = d.apply(plan=plan)
    assert said.code == 3 and "No space left" in said.out and "--resume" in said.err, said
    assert d.outcomes() == {"n1": "changed", "n2": "not_attempted"}
    assert d.report().code == 3 and not (d.run / RESERVE).exists()
    assert d.resume().code == 0
    assert d.outcomes() == {"n1": "changed", "n2": "changed"} and not (d.run / RESERVE).exists()


def test_d6_a_result_that_cannot_be_kept_is_shown(rig: Callable[..., CommandRig]) -> None:
    d = rig("n1")
    (d.run / "result.json" / "x").mkdir(parents=True)
    (d.run / "evidence").write_text("in the way")
    said = d.apply()
    assert said.code == 3 and "CHANGED" in said.out, said
    assert "not everything could be stored" in said.out, said
    assert "--resume" in said.err and (d.run / "result.md").exists()
    assert d.outcomes() == {"n1": "changed"}
    (d.run / "rollback-1.txt" / "x").mkdir(parents=True)
    said = d.rollback()
    assert said.code == 3 and "ROLLED BACK" in said.out, said
    assert f"nodevet rollback {d.run}" in said.err


def test_d6_space_is_checked_before_the_first_write(
    rig: Callable[..., CommandRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1", "n2")
    plan = d.plan()
    found = os.statvfs(d.project)
    fields = [*found]
    fields[4] = 100  # f_bavail
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(fields))
    said = d.apply(plan=plan)
    assert said.code == 2 and "is free there" in said.err and "--run" in said.err, said
    assert not d.run.exists() and not d.reached


def test_d6_reserved_disk_space_grows_with_the_nodes_in_progress(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2", "n3")
    plan = d.w.plan()
    one, two = space.reserve_bytes(plan, 1), space.reserve_bytes(plan, 2)
    assert 0 < one < two < space.reserve_bytes(plan, 3) == space.reserve_bytes(plan, 9)
    assert space.needed_bytes(plan, 1) > 3 * space.node_bytes(plan.host_steps("n1"))
    assert d.apply().code == 0
    sizes = {}
    for line in (d.run / "journal.jsonl").read_bytes().splitlines():
        for host in d.w.boxes:
            sizes[host] = sizes.get(host, 0) + (len(line) if host.encode() in line else 0)
    assert max(sizes.values()) < space.node_bytes(plan.host_steps("n1"))
    assert replace(plan, steps=()) and space.node_bytes(()) > 0


def test_d6_a_run_stops_if_a_full_disk_prevents_checking_approvals(
    rig: Callable[..., CommandRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh-keygen reads files; the folder of temporary files fills up while n1 is in hand."""
    d = rig("n1", "n2")
    plan = d.plan(batch=1)

    def fault(box: Any, call: str, when: str) -> None:
        if call == "act":
            monkeypatch.setattr("tempfile.tempdir", str(d.project / "full"))

    d.w.executor.fault = fault
    said = d.apply(plan=plan)
    assert said.code == 1 and "internal error" not in said.out, said
    assert d.outcomes() == {"n1": "changed", "n2": "not_attempted"}
    assert "cannot tell whether the plan is approved" in said.out and "set TMPDIR" in said.out
    assert DrainHook("true", "n1", 9).drain().endswith("No such file or directory; see TMPDIR")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system of its own takes root")
def test_d6_a_disk_that_fills_up_in_the_middle(rig: Callable[..., CommandRig]) -> None:
    """A tmpfs in a mount namespace of the process, filled up while the first node is in hand."""
    d = rig("n1", "n2")
    plan = d.plan(batch=1)
    d.run.parent.mkdir()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = in_its_own_world(d, plan, writing)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3, text
    assert "CHANGED        n1" in text and "NOT ATTEMPTED  n2" in text and "No space left" in text
    assert "n1 changed" in text and "n2 not_attempted" in text, "by the journal, too"


def in_its_own_world(d: CommandRig, plan: Path, writing: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(d.run.parent)]
    for words in (["mount", "--make-rprivate", "/"], mount):
        subprocess.run(words, check=True)

    def fault(box: Any, call: str, when: str) -> None:
        if call == "act" and when == "after" and not (d.run.parent / "filler").exists():
            with (d.run.parent / "filler").open("wb", buffering=0) as filler:
                for size in (65536, 1):
                    while fills(filler, size):
                        pass

    d.w.executor.fault = fault
    said = d.apply(plan=plan)
    told = "".join(f"{host} {outcome}\n" for host, outcome in d.outcomes().items())
    with os.fdopen(writing, "w") as out:
        out.write(said.out + said.err + told)
    sys.stdout.flush()
    return int(said.code)


def fills(filler: Any, size: int) -> bool:
    try:
        return bool(filler.write(bytes(size)))
    except OSError:
        return False
