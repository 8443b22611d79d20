"""A package manager at work: what it is doing passes by itself, what it left half done does not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodevet.remote.probe import package_manager
from nodevet.remote.probe.files import SectionError, TransientError
from nodevet.remote.probe.package_manager import is_held, is_listed, refuse_unfinished

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
HOLD += "print('held', flush=True); sys.stdin.read()"

NOBODY = 65534


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In a folder that all users may enter, as dpkg's is."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "lock")
        path.touch()
        monkeypatch.setattr(package_manager, "DPKG_LOCKS", (str(path),))
        yield path


@pytest.fixture
def hold(lock: Path) -> Iterator[None]:
    words = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        yield
        assert process.stdin
        process.stdin.close()


def test_a_package_manager_without_a_lock_is_not_busy(lock: Path, tmp_path: Path) -> None:
    assert not is_held(str(lock)) and not is_listed(str(lock))
    assert not is_held(str(tmp_path / "none"))
    assert not package_manager.is_busy("/")


@pytest.mark.usefixtures("hold")
def test_e14_a_package_manager_whose_lock_is_held_is_busy(lock: Path) -> None:
    assert is_held(str(lock)) and is_listed(str(lock))
    assert package_manager.is_busy("/")
    assert not package_manager.is_busy("/srv/tree")


@contextmanager
def not_root() -> Iterator[None]:
    """As a user who may not open every file."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_e14_a_held_lock_is_seen_by_users_who_may_not_open_it(
    lock: Path, request: pytest.FixtureRequest
) -> None:
    lock.chmod(0)
    with not_root(), pytest.raises(PermissionError):
        lock.read_bytes()
    with not_root():
        assert not is_held(str(lock))
    request.getfixturevalue("hold")
    with not_root():
        assert is_held(str(lock))


@pytest.mark.usefixtures("hold")
def test_a_lock_on_another_device_is_a_different_lock(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = lock.stat()
    assert is_listed(str(lock))
    for device, listed in ((os.makedev(7, 200), False), (os.makedev(0, 200), True)):
        other = os.stat_result((*held[:2], device, *held[3:]))
        monkeypatch.setattr(package_manager.os, "stat", lambda _, other=other: other)
        assert is_listed(str(lock)) is listed


@pytest.mark.usefixtures("hold")
def test_e14_an_unfinished_dpkg_that_still_works_is_a_transient_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: True)
    with pytest.raises(TransientError, match="the package manager is at work"):
        refuse_unfinished("/")


@pytest.mark.usefixtures("lock")
def test_e14_an_interrupted_dpkg_is_a_permanent_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: True)
    with pytest.raises(SectionError, match="dpkg --configure -a") as caught:
        refuse_unfinished("/")
    assert not isinstance(caught.value, TransientError)


@pytest.mark.usefixtures("lock")
def test_dpkg_that_ended_meanwhile_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])
    monkeypatch.setattr(package_manager, "is_unfinished", lambda root: next(answers))
    refuse_unfinished("/")
