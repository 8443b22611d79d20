"""The lock's file and its keeper; two controllers are in tests/fleet/test_work.py."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from nodevet.hand import lock
from nodevet.hand.main import Refused


def test_a_second_taker_is_told_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "folder", lambda: str(tmp_path / "nodevet"))
    monkeypatch.setattr(lock, "_held", [])
    path = str(tmp_path / "nodevet/lock")
    assert lock.lock({"who": "ann \x1b[1m"}) == {"held": True, "path": path}
    told = lock.lock({"who": "bob"})
    assert told["held"] is False and told["who"] == "ann \x1b[1m" and told["since"].endswith("Z")
    assert told["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (tmp_path / "nodevet").stat().st_mode & 0o777 == 0o700
    for file in lock._held:
        os.close(file)
    lock._held.clear()
    assert lock.lock({"who": "bob"})["held"] is True
    for file in lock._held:
        os.close(file)


def test_a_holder_that_wrote_nonsense_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "folder", lambda: str(tmp_path))
    monkeypatch.setattr(lock, "TRIES", 2)
    with (tmp_path / "lock").open("w") as file:
        file.write("[1]")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock.lock({"who": "bob"})["who"] == "somebody who does not say"


def test_a_place_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "planted").mkdir(mode=0o700)
    (tmp_path / "planted/lock").symlink_to(tmp_path / "victim")
    (tmp_path / "pipe").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe/lock")
    for name in ("open", "link", "planted", "pipe", "no/such"):
        monkeypatch.setattr(lock, "folder", lambda name=name: str(tmp_path / name))
        with pytest.raises(Refused):
            lock.lock({"who": "bob"})
    assert not (tmp_path / "victim").exists()


def test_signs_of_life_are_answered_and_silence_ends_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    back, out = os.pipe()
    try:
        keeper = threading.Thread(target=lock.keep, args=(ours, out))
        keeper.start()
        os.write(theirs, b"\n")
        assert os.read(back, 10) == b"\n" and keeper.is_alive()
        os.close(theirs)
        keeper.join(20)
        assert not keeper.is_alive()
        os.close(ours)
        ours, theirs = os.pipe()
        monkeypatch.setattr(lock, "SILENCE", 0.2)
        begun = time.monotonic()
        lock.keep(ours, out)
        assert time.monotonic() - begun < 20
    finally:
        for file in (ours, theirs, back, out):
            os.close(file)
