"""The lock's file and its keeper; two controllers are in tests/fleet/controller."""

import fcntl
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevet.fleet.protocol.commands import FENCED, Fence
from nodevet.remote import lock
from nodevet.remote.main import Refused

Take = Callable[..., dict[str, Any]]


@pytest.fixture
def take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Take]:
    """Takes the lock, in a folder of its own."""
    monkeypatch.setattr(lock, "lock_folder", lambda: str(tmp_path / "nodevet"))
    monkeypatch.setattr(lock, "_held", [])

    def taking(who: str, token: str = "a token", deadline: float = 30) -> dict[str, Any]:
        return lock.lock({"who": who, "token": token, "deadline": deadline})

    yield taking
    let_go()


def let_go() -> None:
    while lock._held:
        os.close(lock._held.pop())


def act(taken: dict[str, Any], token: str, script: str) -> subprocess.Popen[str]:
    """An action as a controller begins it."""
    fence = Fence(taken["path"], taken["acting"], taken["python"], token)
    return subprocess.Popen(
        ["sh", "-c", fence.around(script, mark="mark")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_refused_lock_request_names_the_holder(take: Take, tmp_path: Path) -> None:
    path = str(tmp_path / "nodevet/lock")
    assert take("ann \x1b[1m") == {
        "held": True,
        "path": path,
        "acting": str(tmp_path / "nodevet/acting"),
        "python": sys.executable,
    }
    told = take("bob")
    assert told["held"] is False and told["who"] == "ann \x1b[1m" and told["since"].endswith("Z")
    assert told["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (tmp_path / "nodevet").stat().st_mode & 0o777 == 0o700
    let_go()
    assert take("bob")["held"] is True


def test_the_lock_is_held_until_all_processes_of_an_action_end(take: Take, tmp_path: Path) -> None:
    taken = take("ann", "first")
    action = act(taken, "first", "sleep 60 >/dev/null 2>&1 & echo $!")
    said, complaint = action.communicate(timeout=120)
    assert (action.returncode, complaint) == (0, "")
    beside = act(taken, "first", "echo beside")
    assert beside.communicate(timeout=120) == ("beside\n", ""), "the holder's own may run beside it"
    let_go()
    try:
        for who in ("bob", "carol"):
            told = take(who, "second", deadline=0.1)
            assert (told["held"], told["who"]) == (False, "ann")
            assert told["running"] == f"pid {int(said)} (sleep)"
        assert not lock._held
        late = act(taken, "first", "echo late")
        assert late.communicate(timeout=120)[0] == "" and late.returncode == FENCED
    finally:
        os.kill(int(said), signal.SIGKILL)
    assert take("bob")["held"] is True


def test_the_search_for_the_lock_holder_calls_stat_only_on_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may be on a file system that hangs."""
    stats: list[str] = []
    real = os.stat

    def noting(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(f"/proc/{holder.pid}/fd/"):
            stats.append(str(Path(path).readlink()))
        return real(path, *rest, **more)

    with (
        (tmp_path / "acting").open("w") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as holder,
    ):
        monkeypatch.setattr(os, "stat", noting)
        assert lock.processes_text(file.fileno()) == f"pid {holder.pid} (cat)"
        holder.communicate()
    assert stats == [file.name]


def test_an_action_without_its_lock_does_not_begin(take: Take, tmp_path: Path) -> None:
    def why(token: str) -> str:
        action = act(taken, token, f"touch {tmp_path}/begun")
        said, complaint = action.communicate(timeout=120)
        assert (action.returncode, said) == (FENCED, "") and not (tmp_path / "begun").exists()
        *lines, mark = complaint.splitlines()
        assert mark == "mark"
        return lines[-1] if lines else ""

    taken = take("ann", "first")
    assert why("another") == "another controller has taken the lock since"
    with Path(taken["acting"]).open() as taker:
        fcntl.flock(taker, fcntl.LOCK_EX)
        assert why("first") == "another controller is taking the lock"
    let_go()
    assert why("first") == "the lock is no longer held"
    Path(taken["acting"]).unlink()
    assert why("first") == ""
    Path(taken["acting"]).touch()
    Path(taken["path"]).unlink()
    assert why("first").startswith("FileNotFoundError")


def test_actions_of_two_lock_holders_never_overlap(take: Take, tmp_path: Path) -> None:
    """Each holder is gone before or after its action began: that runs alone, or not at all."""
    meet = f"mkdir {tmp_path}/one && sleep 0.5 && rmdir {tmp_path}/one || echo met"
    begun: list[subprocess.Popen[str]] = []

    def controller(who: str) -> None:
        for number in range(6):
            token = secrets.token_hex(16)
            while not (taken := take(who, token, deadline=60))["held"]:
                pass
            action = act(taken, token, f"touch {tmp_path}/{token}; {meet}")
            begun.append(action)
            while number % 3 and action.poll() is None and not (tmp_path / token).exists():
                time.sleep(0.01)
            time.sleep(0.01 * number)
            os.close(lock._held.pop())

    threads = [threading.Thread(target=controller, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    ends = [(each.communicate(timeout=60)[0], each.returncode) for each in begun]
    assert len(ends) == 12 and ends.count(("", 0)) >= 8
    assert set(ends) <= {("", 0), ("", FENCED)}


def test_a_lock_with_an_invalid_holder_record_is_still_held(
    take: Take, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "TRIES", 2)
    (tmp_path / "nodevet").mkdir(mode=0o700)
    with (tmp_path / "nodevet/lock").open("w") as file:
        file.write("[1]")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert take("bob")["who"] == "an unknown controller"


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
        monkeypatch.setattr(lock, "lock_folder", lambda name=name: str(tmp_path / name))
        with pytest.raises(Refused):
            lock.lock({"who": "bob", "token": "a token", "deadline": 30})
    assert not (tmp_path / "victim").exists()


def test_the_lock_keeper_answers_heartbeats_and_ends_without_them(
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
        keeper.join(100)
        assert not keeper.is_alive()
        os.close(ours)
        ours, theirs = os.pipe()
        monkeypatch.setattr(lock, "SILENCE", 0.2)
        begun = time.monotonic()
        lock.keep(ours, out)
        assert time.monotonic() - begun < 100
    finally:
        for file in (ours, theirs, back, out):
            os.close(file)
