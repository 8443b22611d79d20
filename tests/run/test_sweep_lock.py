"""The lock of a sweep, where other users could hold it or write what it says."""

import resource
from pathlib import Path

import pytest

from nodevet.base.errors import UserError
from nodevet.base.files import state_folder
from nodevet.base.last_verdict import records_folder
from nodevet.vet.use.sweep_lock import HeldError, locked


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "nodevet" / "locks"


def test_e03_only_one_sweep_can_hold_the_lock_of_a_host(locks: Path) -> None:
    with (
        locked(["a", "b"], "first"),
        pytest.raises(HeldError, match="b is being swept by `first`"),
        locked(["b"], "second"),
    ):
        pass
    with locked(["b"], "third"):
        assert len(list(locks.iterdir())) == 2


@pytest.mark.parametrize("open_to_all", [".", "..", "../.."])
def test_e03_a_lock_that_others_could_plant_is_refused(locks: Path, open_to_all: str) -> None:
    locks.mkdir(parents=True, mode=0o700)
    (locks / open_to_all).resolve().chmod(0o777)
    with (
        pytest.raises(UserError, match=r"sweep lock: .*mode 0777\) can be written by everyone"),
        locked(["a"], "sweep"),
    ):
        pass
    assert not list(locks.iterdir())


def test_e03_a_lock_that_others_may_write_is_refused(locks: Path) -> None:
    with locked(["a"], "sweep"):
        pass
    (lock,) = locks.iterdir()
    lock.chmod(0o666)
    with pytest.raises(UserError, match=lock.name), locked(["a"], "sweep"):
        pass


def test_e03_a_relative_xdg_state_home_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert state_folder() == tmp_path / ".local" / "state" / "nodevet"
    assert records_folder().startswith(("/var/cache/nodevet", str(tmp_path)))


def test_on_a_full_disk_the_lock_works_without_the_name_of_its_holder(locks: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with (
            locked(["a"], "first"),
            pytest.raises(HeldError, match="a is being swept by another process"),
            locked(["a"], "second"),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(list(locks.iterdir())) == 1


def test_a_lock_that_cannot_be_written_is_named(locks: Path) -> None:
    locks.parent.mkdir(parents=True, mode=0o700)
    locks.write_text("")
    why = f"sweep lock: {locks}: File exists: correct that, or skip the lock with --no-lock"
    with pytest.raises(UserError, match=why), locked(["a"], "sweep"):
        pass
