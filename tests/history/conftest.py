"""The five nights as they are remembered, and commands that ask for them on a fixed day."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import five_nights
import pytest
from click.testing import CliRunner

from nodevet.cli import nodevet
from nodevet.past import terminal as recalled
from nodevet.past.use.site.write import write_site

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=timezone.utc)
Say = Callable[..., str]


@pytest.fixture(scope="session")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the five nights, which no test changes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('five')}/history.sqlite"
    five_nights.record(url)
    return url


@pytest.fixture(scope="session")
def site(remembered: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the five nights, which no test changes."""
    folder = tmp_path_factory.mktemp("web") / "public"
    write_site(remembered, folder)
    return folder


@pytest.fixture
def nine_o_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the morning after the fifth night, in UTC."""
    monkeypatch.setattr(recalled, "clock", _clock)
    monkeypatch.setattr(recalled, "local_now", lambda: NOW)


def _clock() -> Any:
    from nodevet.sheet.clock import Clock

    return Clock(now=NOW, zone=timezone.utc)


@pytest.fixture
def say(remembered: str, nine_o_clock: None, monkeypatch: pytest.MonkeyPatch) -> Say:
    """What a command of the history prints."""

    def run(*words: str, code: int = 0) -> str:
        monkeypatch.setenv("NODEVET_STORE", remembered)
        done = CliRunner().invoke(nodevet, list(words), catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done.stdout

    return run
