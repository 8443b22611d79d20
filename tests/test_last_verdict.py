"""A kept pass is the answer while nothing that it depends on has changed; any doubt is none."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.base import last_verdict
from nodevet.base.last_verdict import clocks, forget, is_asked, recall, remember

ASKED = ["check", "@local", "--max-age", "5m"]
TEXT = b"All ok: 1 host\n"
Keep = Callable[..., bool]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/nodevet/verdicts"


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A file of long ago."""
    path = tmp_path / "b.yaml"
    path.write_text("nodevet: 1\n")
    return path


@pytest.fixture
def keep(baseline: Path) -> Keep:
    """Keeps TEXT; a check that `began` so many seconds from now, as if files were older."""

    def keep(*files: Path, began: float = 10.0, most: float = 300.0, dated: bool = False) -> bool:
        wall, boot = clocks()
        paths = [str(path) for path in files or (baseline,)]
        moment = (wall + began, boot + began)
        return remember(ASKED, TEXT, paths, max_age=most, began=moment, show_age=dated)

    return keep


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Both clocks go on by so many seconds, or each by its own."""

    def later(wall: float, boot: float | None = None) -> None:
        now = clocks()
        moved = (now[0] + wall, now[1] + (wall if boot is None else boot))
        monkeypatch.setattr(last_verdict, "clocks", lambda: moved)

    return later


def only(folder: Path) -> Path:
    (path,) = (path for path in folder.iterdir() if path.name != last_verdict.FORGET_MARK)
    return path


def test_a_pass_is_reused_until_it_is_too_old(keep: Keep, later: Callable[..., None]) -> None:
    assert keep()
    later(20)
    assert recall(ASKED) == TEXT
    later(320)
    assert recall(ASKED) is None


def test_the_age_of_a_reused_pass_is_appended_to_its_last_line(
    keep: Keep, later: Callable[..., None]
) -> None:
    assert keep(dated=True)
    later(10 + 190)
    assert recall(ASKED) == "All ok: 1 host · verdict of 3 min ago\n".encode()


@pytest.mark.parametrize("asked", [["check", "@local"], ["check", "gpu1", "--max-age=5m"], []])
def test_other_command_lines_are_not_looked_at(asked: list[str]) -> None:
    assert not is_asked(asked)


@pytest.mark.parametrize("asked", [[*ASKED, "--fail-on", "info"], ASKED[:3], [*ASKED[:3], "50m"]])
def test_another_command_line_has_no_verdict(
    keep: Keep, later: Callable[..., None], asked: list[str]
) -> None:
    keep()
    later(20)
    assert recall(asked) is None


def test_a_pass_is_not_reused_after_the_clock_was_set(
    keep: Keep, later: Callable[..., None]
) -> None:
    keep()
    for wall, boot in ((-3600, 20), (3600, 20), (20, 120), (9, 9)):
        later(wall, boot)
        assert recall(ASKED) is None


def test_a_pass_is_not_reused_on_another_day_because_waivers_expire(
    keep: Keep, later: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep()
    later(20)
    monkeypatch.setattr(time, "strftime", lambda form, at: "2099-01-01")
    assert recall(ASKED) is None


@pytest.mark.parametrize(("began", "text"), [(-120.0, None), (-30.0, TEXT)])
def test_a_check_that_began_before_midnight_is_not_reused_on_the_new_day(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, began: float, text: bytes | None
) -> None:
    ahead = (60 - int(time.time())) % 86400  # midnight was a minute ago
    monkeypatch.setenv("TZ", f"LOC-{ahead // 3600}:{ahead // 60 % 60}:{ahead % 60}")
    time.tzset()
    try:
        assert keep(Path(os.__file__), began=began)
        assert recall(ASKED) == text
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("which", ["BOOT_ID", "MACHINE_ID"])
@pytest.mark.parametrize("text", ["another\n", "", None])
def test_another_boot_or_machine_has_no_verdict(
    keep: Keep,
    later: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    which: str,
    text: str | None,
) -> None:
    keep()
    later(20)
    path = tmp_path / "id"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(last_verdict, which, str(path))
    assert recall(ASKED) is None


def test_a_pass_is_not_reused_after_a_file_changed(
    keep: Keep, later: Callable[..., None], baseline: Path
) -> None:
    keep()
    before = baseline.stat()
    baseline.write_text("nodevet: 2\n")
    os.utime(baseline, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert baseline.stat().st_size == before.st_size
    later(20)
    assert recall(ASKED) is None


def test_a_pass_is_not_reused_after_a_file_was_added_removed_or_replaced(
    keep: Keep, later: Callable[..., None], baseline: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    assert keep(baseline, other)
    now = clocks()
    later(20)
    assert recall(ASKED) == TEXT
    other.write_text("")
    assert recall(ASKED) is None
    other.unlink()
    assert recall(ASKED) == TEXT
    baseline.unlink()
    assert recall(ASKED) is None
    assert now < clocks()


def test_a_pass_is_not_reused_after_a_folder_got_another_file(
    keep: Keep, later: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "baselines"
    folder.mkdir()
    assert keep(folder)
    later(20)
    assert recall(ASKED) == TEXT
    (folder / "more.yaml").write_text("")
    assert recall(ASKED) is None


def test_nothing_is_kept_if_a_file_may_have_changed_while_it_was_read(
    keep: Keep, state: Path
) -> None:
    assert not keep(began=0)
    assert not state.exists()


def test_no_pass_is_stored_from_a_check_that_began_before_a_failure_was_seen(
    keep: Keep, later: Callable[..., None], state: Path
) -> None:
    assert keep()
    later(20)
    assert recall(ASKED) == TEXT
    forget()
    assert recall(ASKED) is None
    assert not keep(began=-1)
    assert [path.name for path in state.iterdir()] == [last_verdict.FORGET_MARK]
    assert keep()


def test_a_record_that_others_may_have_written_is_not_believed(
    keep: Keep, later: Callable[..., None], state: Path
) -> None:
    keep()
    later(20)
    assert (state.stat().st_mode & 0o777, only(state).stat().st_mode & 0o777) == (0o700, 0o600)
    only(state).chmod(0o640)
    assert recall(ASKED) is None
    only(state).chmod(0o600)
    state.chmod(0o770)
    assert recall(ASKED) is None
    state.chmod(0o700)
    assert recall(ASKED) == TEXT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_not_believed(
    keep: Keep, later: Callable[..., None], state: Path
) -> None:
    keep()
    later(20)
    os.chown(only(state), 65534, 65534)
    assert recall(ASKED) is None


@pytest.mark.parametrize("cut", [0, 1, 20, 200, -20, -1])
def test_a_truncated_record_is_not_reused(
    keep: Keep, later: Callable[..., None], state: Path, cut: int
) -> None:
    keep()
    later(20)
    path = only(state)
    path.write_bytes(path.read_bytes()[:cut])
    assert recall(ASKED) is None


def test_a_pass_is_not_reused_in_another_environment(
    keep: Keep, later: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep()
    later(20)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    assert recall(ASKED) is None


def test_many_command_lines_do_not_fill_the_folder(keep: Keep, state: Path, baseline: Path) -> None:
    wall, boot = clocks()
    for number in range(100):
        asked = [*ASKED, str(number)]
        moment = (wall + 10, boot + 10)
        remember(asked, TEXT, [str(baseline)], max_age=300, began=moment, show_age=False)
    assert 0 < len(list(state.iterdir())) <= last_verdict.MOST_RECORDS
