"""A package manager at work: what it is doing passes by itself, what it left half done does not."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodevet.remote.probe import package_manager
from nodevet.remote.probe.files import SectionError, TransientError
from nodevet.remote.probe.package_manager import is_held, is_listed, refuse_unfinished

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
HOLD += "print('held', flush=True); sys.stdin.read()"

Hold = Callable[[], None]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(package_manager, "DPKG_LOCKS", (str(path),))
    return path


@pytest.fixture
def hold(lock: Path) -> Iterator[None]:
    words = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        yield
        assert process.stdin
        process.stdin.close()


def test_no_lock_no_work(lock: Path, tmp_path: Path) -> None:
    assert not is_held(str(lock)) and not is_listed(str(lock))
    assert not is_held(str(tmp_path / "none"))
    assert not package_manager.is_at_work("/")


@pytest.mark.usefixtures("hold")
def test_e14_a_held_lock_is_work(lock: Path) -> None:
    assert is_held(str(lock)) and is_listed(str(lock))
    assert package_manager.is_at_work("/")
    assert not package_manager.is_at_work("/srv/tree")


@pytest.mark.usefixtures("hold")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_e14_a_held_lock_is_seen_by_users_who_may_not_open_it(lock: Path) -> None:
    lock.chmod(0)
    assert is_held(str(lock))


@pytest.mark.usefixtures("hold")
def test_e14_dpkg_at_work_passes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: True)
    with pytest.raises(TransientError, match="the package manager is at work"):
        refuse_unfinished("/")


@pytest.mark.usefixtures("lock")
def test_e14_dpkg_that_was_interrupted_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: True)
    with pytest.raises(SectionError, match="dpkg --configure -a") as caught:
        refuse_unfinished("/")
    assert not isinstance(caught.value, TransientError)


@pytest.mark.usefixtures("lock")
def test_dpkg_that_ended_meanwhile_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: next(answers))
    refuse_unfinished("/")
