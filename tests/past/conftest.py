"""Five recorded nights, and the command line that asks them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import five_nights
import pytest

Past = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store that holds them. It is read only."""
    found = f"sqlite:///{tmp_path_factory.mktemp('past') / 'history.sqlite'}"
    five_nights.record(found)
    return found


@pytest.fixture(scope="session")
def nodevet(url: str, tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Runs a command in a project with the baselines of the site, and these nights."""
    project = tmp_path_factory.mktemp("site")
    (project / "baselines").mkdir()
    for file in five_nights.READ.glob("*.yaml"):
        (project / "baselines" / file.name).write_text(file.read_text())

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *map(str, words)],
            cwd=project,
            env={**os.environ, "NODEVET_STORE": url, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def tighter(tmp_path: Path) -> Path:
    """A baseline of tomorrow: the H100 nodes' with another driver and tuned."""
    text = (five_nights.READ / "site-h100.yaml").read_text()
    found = tmp_path / "tomorrow.yaml"
    found.write_text(text.replace("tuned: any", 'tuned: {minimum: "2.24"}'))
    return found
