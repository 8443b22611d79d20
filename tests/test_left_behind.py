"""A test that leaves a process or an open file behind fails itself, and ends the process."""

import subprocess
import sys
from pathlib import Path

RIGS = Path(__file__).with_name("rigs")
TESTS = """
import subprocess
import left_behind
import pytest

KEPT = []
left_behind.GRACE = 0.5

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


def test_a_test_that_leaves_a_file_or_process_open_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "left_behind"]
    where = ["-o", f"pythonpath={RIGS}", "."]
    told = subprocess.run([*words, *where], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "the test leaves behind the open file " in told
    assert "the test leaves behind the process sleep 600: close or end it there" in told
    assert "4 passed, 2 errors" in told
