"""`nodevet.base.files`: a file is the old one or the new one, whatever happens in between."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodevet.base import files
from nodevet.base.files import write_whole
from nodevet.base.outputs import open_to_append

OLD, NEW = b"old" * 100_000, b"new" * 200_000

KILLED = """
import os, signal, sys
from pathlib import Path
from nodevet.base.files import write_whole

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "write":
    sys.setprofile(lambda _, event, arg: event == "c_call" and arg.__name__ == "write" and die())
elif sys.argv[2] == "sync":
    os.fsync = die
elif sys.argv[2] == "rename":
    Path.replace = die
elif sys.argv[2] == "folder":
    import nodevet.base.files
    nodevet.base.files.sync_folder = die
write_whole(Path(sys.argv[1]), b"new" * 200_000, durable=True)
"""

FOREVER = """
import sys
from pathlib import Path
from nodevet.base.files import write_whole

Path(sys.argv[2]).touch()
while True:
    for word in (b"new" * 200_000, b"old" * 100_000):
        write_whole(Path(sys.argv[1]), word, durable=False)
"""


@pytest.mark.parametrize(
    ("moment", "content"),
    [("write", OLD), ("sync", OLD), ("rename", OLD), ("folder", NEW)],
)
def test_a_kill_in_the_middle_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, moment: str, content: bytes
) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(OLD)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == content
    write_whole(path, NEW, durable=True)  # what the kill left over does no harm
    assert path.read_bytes() == NEW


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path, begun = tmp_path / "report.json", tmp_path / "begun"
    path.write_bytes(OLD)
    for number in range(5):
        begun.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", FOREVER, str(path), str(begun)])
        try:
            while not begun.exists():
                time.sleep(0.01)
            for _ in range(20):
                assert path.read_bytes() in (OLD, NEW)
            time.sleep(0.003 * number)
        finally:
            writer.kill()
            writer.wait()
        assert path.read_bytes() in (OLD, NEW)


@pytest.mark.parametrize(("mask", "mode"), [(0o000, 0o644), (0o022, 0o644), (0o077, 0o600)])
def test_no_umask_lets_others_write_to_the_file(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "plan.json", NEW, durable=True)
        open_to_append(tmp_path / "hosts.jsonl").close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {mode}


def full_disk(*args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*args: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("how", "error"), [(full_disk, OSError), (interrupted, KeyboardInterrupt)])
def test_a_failed_write_leaves_the_folder_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: object, error: type[BaseException]
) -> None:
    (tmp_path / "plan.json").write_bytes(OLD)
    monkeypatch.setattr(files.os, "fsync", how)
    with pytest.raises(error):
        write_whole(tmp_path / "plan.json", NEW, durable=True)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == OLD


def test_only_a_durable_write_calls_fsync_on_the_file_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(
        files.os, "fsync", lambda number: synced.append(stat.S_ISDIR(os.fstat(number).st_mode))
    )
    write_whole(tmp_path / "evidence.json", NEW, durable=False)
    assert synced == []
    write_whole(tmp_path / "plan.json", NEW, durable=True)
    assert synced == [False, True]


def test_a_symlink_is_replaced_and_its_target_is_not_changed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(OLD)
    (tmp_path / "plan.json").symlink_to(elsewhere)
    write_whole(tmp_path / "plan.json", NEW, durable=True)
    assert not (tmp_path / "plan.json").is_symlink()
    assert elsewhere.read_bytes() == OLD


def test_a_name_as_long_as_a_name_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, NEW, durable=True)
    assert path.read_bytes() == NEW
