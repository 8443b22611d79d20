"""This machine as an executor: the lock, the looks and the actions of a node, without SSH."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevet.evidence.document import decode
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.model import Host
from nodevet.remote import lock
from nodevet.remote.managers.agents import AGENTS
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile

HERE = Host(name="here", local=True)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the machine")


@pytest.fixture
def worker() -> Iterator[SshExecutor]:
    with SshExecutor([HERE], Options(deadline=30)) as worker:
        worker.open("here")
        yield worker


def test_the_session_reads_evidence_and_states_of_this_machine(
    worker: SshExecutor, tmp_path: Path
) -> None:
    found = decode(worker.probe("here"))[HostInfo].data
    assert found is not None
    assert found.kernel == os.uname().release
    path = tmp_path / "file"
    path.write_text("text\n")
    (state,) = worker.look("here", [Resource(kind="file", name=str(path))])
    assert (state.exists, state.why) == (True, "")
    assert worker.managers("here", [Resource(kind="file", name=str(path))]) is not None
    assert len(worker.agents("here")) <= len(AGENTS)


def test_the_session_writes_a_whole_file_while_it_holds_the_lock(
    worker: SshExecutor, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    worker.lock("here", "a test")
    done = worker.act("here", WriteFile(path=str(path), content="one\ntwo 'quoted'\n"))
    assert done.ok, done
    assert path.read_text() == "one\ntwo 'quoted'\n"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_keeps_its_access_control_list_and_attributes(
    worker: SshExecutor, tmp_path: Path
) -> None:
    """Entries of an access control list: tag, permissions and id; acl(5)."""
    path = tmp_path / "file"
    path.write_text("old\n")
    entries = [(0x01, 6, -1), (0x02, 6, 7), (0x04, 4, -1), (0x10, 6, -1), (0x20, 0, -1)]
    packed = [struct.pack("<HHI", tag, bits, ids & 0xFFFFFFFF) for tag, bits, ids in entries]
    attributes = {
        "system.posix_acl_access": struct.pack("<I", 2) + b"".join(packed),
        "trusted.note": b"of the site",
    }
    for name, value in attributes.items():
        os.setxattr(path, name, value)
    os.chown(path, 8, 9)
    os.utime(path, (1, 1))
    mode = path.stat().st_mode & 0o7777
    done = worker.act(
        "here", WriteFile(path=str(path), content="new\n", mode=mode, owner=8, group=9)
    )
    assert done.ok and path.read_text() == "new\n", done
    status = path.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, 8, 9)
    assert status.st_mtime > 1, "programs see by the time that it is new"
    assert {name: os.getxattr(path, name) for name in attributes} == attributes


def test_a_command_says_how_it_ended(worker: SshExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_TEST", "x")
    done = worker.act("here", RunCommand(words=("sh", "-c", "env; echo no >&2; exit 3")))
    assert (done.ok, done.code) == (False, 3)
    assert "no" in done.output
    assert "LD_PRELOAD_TEST" not in done.output


def test_a_command_that_takes_too_long_is_ended(worker: SshExecutor) -> None:
    done = worker.act("here", RunCommand(words=("sleep", "60")), seconds=4)
    assert (done.ok, done.code) == (False, 124)
    assert "timed out after 2 s" in done.output


def test_only_one_controller_holds_the_lock_until_its_session_ends(
    worker: SshExecutor,
) -> None:
    worker.lock("here", "the first")
    with SshExecutor([HERE], Options(deadline=30)) as other:
        with pytest.raises(LockedError, match="the first"):
            other.lock("here", "the second")
        with pytest.raises(WorkError, match="lock on this machine is not held"):
            other.act("here", RunCommand(words=("true",)))
        worker.close("here")
        other.lock("here", "the second")
        assert other.act("here", RunCommand(words=("true",))).ok


def test_nothing_is_done_after_another_controller_has_taken_the_lock(
    worker: SshExecutor, tmp_path: Path
) -> None:
    worker.lock("here", "the first")
    Path(lock.lock_folder(), "lock").write_text('{"token": "another"}')
    with pytest.raises(WorkError, match="another controller has taken the lock since") as told:
        worker.act("here", RunCommand(words=("touch", str(tmp_path / "done"))))
    assert told.value.status == "lost"
    assert not (tmp_path / "done").exists()


def test_this_machine_is_never_rebooted(worker: SshExecutor) -> None:
    with pytest.raises(WorkError, match="not on the machine that nodevet runs on"):
        worker.reboot("here", seconds=10)


def test_only_root_can_change_this_machine(
    worker: SshExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for call in (
        lambda: worker.lock("here", "a test"),
        lambda: worker.act("here", RunCommand(words=("true",))),
    ):
        with pytest.raises(WorkError, match="only root can change this machine"):
            call()


def test_a_change_of_this_machine_deletes_its_kept_verdict(
    worker: SshExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = tmp_path / "nodevet/verdicts/56d7f504"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    worker.act("here", RunCommand(words=("true",)))
    assert not kept.exists()
