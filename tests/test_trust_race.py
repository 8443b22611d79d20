"""No other user changes what a trusted path holds between the look at it and its use."""

import itertools
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nodevet.base import trust
from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.base.trust import distrust
from nodevet.fix.approval.policy import RULES, SIGNERS, PolicyError, load
from nodevet.fix.journal.journal import Journal, JournalError
from nodevet.model import Host
from nodevet.slurm import kept
from nodevet.slurm.use import notes
from nodevet.store import StoreError, open_store
from nodevet.vet.use.context import require_accepted
from nodevet.vet.use.looks import Looks
from nodevet.vet.use.sweep_lock import locked

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
NOBODY = pwd.getpwnam("nobody")
OWNERS = (0, NOBODY.pw_uid)
FOLDERS = [*itertools.product(OWNERS, (0o755, 0o777, 0o1777))]
FILES = [*itertools.product(OWNERS, (0o644, 0o666))]
OWN, PLANTED = "its own", "planted"
WAY = ("above", "above/folder", "above/folder/file")


@contextmanager
def another_user() -> Iterator[None]:
    """What is done within is done as nobody."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY.pw_gid)
    os.seteuid(NOBODY.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which another user begins: the ones above it are closed to others."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(top: Path, marks: tuple[tuple[int, int], ...]) -> Path:
    """`above/folder/file` with these owners and modes, and a planted tree of another user's."""
    for folder, text in ((top / "above/folder", OWN), (top / "of-nobody/folder", PLANTED)):
        folder.mkdir(parents=True)
        (folder / "file").write_text(text)
    for path in (top / "of-nobody").rglob("*"):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    for name, (owner, mode) in zip(WAY, marks, strict=True):
        os.chown(top / name, owner, owner and NOBODY.pw_gid)
        (top / name).chmod(mode)
    return top / WAY[-1]


def swap() -> None:
    """Put a link to what another user planted into the place of everything that can be moved, or
    put it back; and write to the file."""
    planted = Path("of-nobody").absolute()
    with another_user():
        for path in map(Path, WAY):
            aside = Path(f"{path}.aside")
            with suppress(OSError):
                if os.path.lexists(aside):
                    path.unlink()
                    aside.rename(path)
                else:
                    path.rename(aside)
                    path.symlink_to(planted.joinpath(*path.parts[1:]))
        with suppress(OSError):
            Path(WAY[-1]).write_text(PLANTED)


def judged_while(path: Path, at: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> str:
    """Who could change a path, if another user swaps it after each of these looks at a part."""
    seen = itertools.count()
    really = Path.lstat

    def lstat(self: Path) -> Any:
        try:
            return really(self)
        finally:
            if at(next(seen)):
                swap()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", lstat)
        return distrust(path, must_exist=True)


@pytest.mark.parametrize("after", [*range(14), None])
def test_e01_a_file_swapped_after_it_was_checked_is_not_read(
    reachable: Path, after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = set()
    for number, marks in enumerate(itertools.product(FOLDERS, FOLDERS, FILES)):
        top = reachable / str(number)
        top.mkdir()
        monkeypatch.chdir(top)
        path = lay(top, marks)
        at = (lambda _: True) if after is None else (lambda look: look == after)
        why = judged_while(path, at, monkeypatch)
        swap()
        verdicts.add(bool(why))
        assert why or path.read_text() == OWN, marks
    assert verdicts == {True, False}


def test_the_swap_of_this_test_works_on_a_distrusted_path(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above could not fail."""
    path = lay(reachable, ((0, 0o755), (0, 0o777), (0, 0o644)))
    monkeypatch.setattr(trust, "_fault", lambda *_: "")
    assert judged_while(path, lambda _: False, monkeypatch) == ""
    swap()
    assert path.read_text() == PLANTED


def count_looks(state: Path) -> None:
    Looks(["check"], [Host(name="n1", local=True)], 3)


def lock_a_sweep(state: Path) -> None:
    with locked(["inventory"], "nodevet sweep"):
        pass


def leave_a_note(state: Path) -> None:
    if lost := notes.write(notes.PROLOG, "GPU 3 is lost"):
        raise UserError(lost)


def open_a_store(state: Path) -> None:
    open_store(f"sqlite:///{state}/nodevet/history.sqlite").close()


def begin_a_run(state: Path) -> None:
    Journal.create(state / "nodevet/run").close()


MAKERS: dict[Callable[[Path], None], type[Exception]] = {
    count_looks: UserError,
    lock_a_sweep: UserError,
    leave_a_note: UserError,
    open_a_store: StoreError,
    begin_a_run: JournalError,
}


@pytest.fixture
def shared(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder such as /tmp, in which another user may create what is not there yet."""
    folder = reachable / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return folder


def planted_before(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user creates the folder of the state just before nodevet does."""
    really = getattr(module, name)

    def make(*args: Any, **options: Any) -> None:
        with another_user(), suppress(FileExistsError):
            os.mkdir("nodevet")  # noqa: PTH102 (Path.mkdir may be this very function)
        really(*args, **options)

    monkeypatch.setattr(module, name, make)


@pytest.mark.parametrize("use", MAKERS)
def test_e03_no_folder_is_used_that_another_user_made_meanwhile(
    shared: Path, use: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_before(Path, "mkdir", monkeypatch)
    with pytest.raises(MAKERS[use], match=r"nodevet .owner nobody, mode .* another user"):
        use(shared)
    assert [path for path in shared.rglob("*") if path.is_file()] == []


def test_e03_no_job_is_noted_in_a_folder_that_another_user_made_meanwhile(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_before(os, "makedirs", monkeypatch)
    kept.note_job()
    assert [path for path in shared.rglob("*") if path.is_file()] == []
    monkeypatch.setenv("XDG_STATE_HOME", str(shared.parent / "own"))
    kept.note_job()
    assert (shared.parent / "own/nodevet/slurm/job-7").is_file()


@pytest.mark.parametrize("name", [SIGNERS, RULES])
def test_e01_no_rules_are_used_that_another_user_creates_after_the_project_was_judged(
    shared: Path, name: str
) -> None:
    project = Project(shared)
    require_accepted(project)
    with another_user():
        Path(name).write_text("m ssh-ed25519 AAAA\n" if name == SIGNERS else "nodevet: 1")
    with pytest.raises(PolicyError, match=f"{name} .owner nobody, .*does not use"):
        load(project)


def test_e01_rules_of_a_shared_folder_are_used_if_the_user_accepts_them(shared: Path) -> None:
    (shared / SIGNERS).write_text("ann ssh-ed25519 AAAA\n")
    with pytest.raises(PolicyError, match="others may create files beside"):
        load(Project(shared))
    assert load(Project(shared, named=True)).signers
