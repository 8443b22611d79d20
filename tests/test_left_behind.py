"""A test that leaves a process or an open file behind fails itself, and ends the process."""

import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = """
import subprocess
import pytest

KEPT = []

def test_file(tmp_path):
    KEPT.append((tmp_path / "open").open("w"))

def test_process():
    KEPT.append(subprocess.Popen(["sleep", "600"]))

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared") / "open"
    with path.open("w"), subprocess.Popen(["sleep", "600"]) as started:
        yield
        started.kill()

def test_shared(request):
    request.getfixturevalue("shared")

def test_that_cleans_up(tmp_path):
    with (tmp_path / "open").open("w"), subprocess.Popen(["sleep", "600"]) as started:
        started.kill()
"""

OF_THOSE = """
import importlib.util

spec = importlib.util.spec_from_file_location("those", {path!r})
those = importlib.util.module_from_spec(spec)
spec.loader.exec_module(those)
those.GRACE = 0.5
_tests, _own_state, _nothing_left = those._tests, those._own_state, those._nothing_left
pytest_configure, pytest_unconfigure = those.pytest_configure, those.pytest_unconfigure
"""


def test_what_a_test_leaves_behind_fails_it(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(OF_THOSE.format(path=str(CONFTEST)))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "the test leaves behind the open file " in told
    assert "the test leaves behind the process sleep 600: close or end it there" in told
    assert "4 passed, 2 errors" in told
