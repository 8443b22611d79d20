"""The folders of fleets, and what goes with the last of them."""

import socket
from pathlib import Path

import pytest

from nodevet.base.errors import UserError
from nodevet_sim import cli
from nodevet_sim.nspawn import place


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Those of all fleets, and what they have compiled."""
    top, cache = tmp_path / "run", tmp_path / "cache" / "sim"
    monkeypatch.setattr(place, "TOP", top)
    monkeypatch.setattr(place, "CACHE", cache)
    (cache / "0123456789abcdef").mkdir(parents=True)
    for fleet in ("one", "two"):
        (top / fleet).mkdir(parents=True)
    return top, cache


def test_removing_the_last_fleet_removes_the_build_cache(folders: tuple[Path, Path]) -> None:
    top, cache = folders
    place.remove(place.FleetFolder("one"))
    assert cache.exists() and [entry.name for entry in top.iterdir()] == ["two"]
    place.remove(place.FleetFolder("two"))
    assert not cache.parent.exists() and not top.exists()


def test_removing_fleets_keeps_files_of_others_in_the_cache_folder(
    folders: tuple[Path, Path],
) -> None:
    top, cache = folders
    (cache.parent / "other").write_text("")
    for fleet in ("one", "two", "none"):
        place.remove(place.FleetFolder(fleet))
    assert [entry.name for entry in cache.parent.iterdir()] == ["other"]
    assert not top.exists()


def test_the_build_cache_stays_while_a_process_keeps_it(folders: tuple[Path, Path]) -> None:
    top, cache = folders
    with place.keep_cache():
        with place.keep_cache():
            assert place.is_kept()
        for fleet in ("one", "two"):
            place.remove(place.FleetFolder(fleet))
        assert place.is_kept() and [entry.name for entry in cache.iterdir()] == ["0123456789abcdef"]
    assert not cache.parent.exists() and not top.exists() and not place.is_kept()


def test_the_message_about_an_unanswering_fleet_asks_only_its_owner_to_end_it(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner boots it while someone sets a value of a node of another fleet."""
    top, _ = folders
    with socket.socket(socket.AF_UNIX) as quiet:
        quiet.bind(str(top / "one" / "control"))
    with pytest.raises(UserError, match="node 'gpu1' is in no fleet that answers"):
        cli._fleet_of("gpu1", None)
    said = capsys.readouterr().err
    assert "fleet one does not answer (Connection refused); if it is yours and stays so, " in said


def test_the_build_cache_stays_while_a_fleet_exists(folders: tuple[Path, Path]) -> None:
    _, cache = folders
    with place.keep_cache():
        pass
    assert cache.exists() and not place.is_kept()
