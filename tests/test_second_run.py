"""`make test` runs what failed once more and names what passes only then; `.ci/run` fails by it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "tests.py"
STEADY = "def test_steady():\n    pass\n"
UNSTEADY = """
from pathlib import Path

def test_unsteady():
    seen = Path("seen")
    try:
        assert seen.exists(), "the first time"
    finally:
        seen.touch()
"""
SLOW = """
from pathlib import Path
from time import sleep
import pytest

@pytest.fixture(scope="session", autouse=True)
def nodes():
    Path("begun").touch()
    yield
    Path("ended").touch()

def test_slow():
    sleep(100)
"""
UNLIKE = """
import os
import pytest

@pytest.mark.parametrize("worker", [os.getpid()])
def test_unlike(worker):
    pass
"""
BROKEN = "def test_broken():\n    assert False\n"


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """How the script ends and what it prints where these are all tests, with one worker."""
    spec = spec_from_file_location("second_run", SCRIPT)
    assert spec and spec.loader
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ALL", ("-p", "no:xdist"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def of(tests: str, *options: str, workers: int = 0) -> tuple[int, str]:
        if workers:
            monkeypatch.setattr(script, "ALL", ("-n", str(workers)))
        (tmp_path / "test_some.py").write_text(tests)
        monkeypatch.setattr("sys.argv", [str(SCRIPT), *options])
        code = script.main()
        return code, capfd.readouterr().out

    return of


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1)])
def test_a_test_that_passes_only_the_second_time_is_named(
    run: Run, options: tuple[str, ...], code: int
) -> None:
    ended, told = run(STEADY + UNSTEADY, *options)
    assert "passed only the second time: test_some.py::test_unsteady\n" in told
    assert ended == code, told


def test_a_test_that_fails_twice_fails_the_run(run: Run) -> None:
    ended, told = run(STEADY + UNSTEADY + BROKEN)
    assert "passed only the second time: test_some.py::test_unsteady\n" in told
    assert ended == 1


def test_workers_that_collect_other_tests_end_the_run(run: Run) -> None:
    ended, output = run(UNLIKE, workers=2)
    assert ended == 1
    assert "Different tests were collected" in output and "once more" not in output


def test_a_passing_test_runs_once(run: Run) -> None:
    ended, told = run(STEADY, "--strict")
    assert ended == 0
    assert "second time" not in told and "once more" not in told


def test_ending_the_suite_ends_what_its_tests_started(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(SLOW)
    words = [sys.executable, "-u", str(SCRIPT)]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL) as running:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            time.sleep(0.05)
        running.terminate()
    assert running.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "ended").exists()


def test_ci_run_is_strict() -> None:
    assert "make test STRICT=1" in (SCRIPT.parent / "run").read_text()
    makefile = (SCRIPT.parents[1] / "Makefile").read_text()
    assert ".ci/tests.py $(if $(STRICT),--strict)" in makefile


def test_changed_modules_are_compiled_even_if_python_writes_no_bytecode(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "nodevet").mkdir()
    (tmp_path / "nodevet" / "new.py").touch()
    run(STEADY)
    assert Path(cache_from_source(str(tmp_path / "nodevet" / "new.py"))).exists()
