"""A loader is run and measured: its children and theirs count, and nothing of it is left."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from slow_machine import slowness

from nodevet.remote.probe.collectors import loader
from nodevet.remote.probe.files import Absent

WHO = "root" if os.geteuid() == 0 else ""
BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
# a worker of a worker, each of which burns CPU time; both have ended before the loader has
NESTED = f"""
import subprocess, sys
worker = [sys.executable, "-c", {BURN!r}]
code = "import subprocess, sys; subprocess.run(sys.argv[1:], check=True);" + {BURN!r}
subprocess.run([sys.executable, "-c", code, *worker], check=True)
print("samples 10")
"""
# workers that run on when the loader's time is over, one of them a daemon in a session of its own
ENDLESS = """
import os, sys, time
for own in (False, True):
    if not os.fork():
        if own: os.setsid()
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        while True:
            sum(range(10000))
            time.sleep(0.01)
while True:
    print("samples 5"); print('{"samples": 2, "loss": 0.1}'); print("epoch 1 samples")
    time.sleep(0.2)
"""


def run(words: list[str], seconds: float = 60.0, folder: Path = Path("/")) -> dict:
    question = {"name": "x", "words": words, "folder": str(folder), "path": "", "seconds": seconds,
                "user": WHO}  # fmt: skip
    reading = loader.collect("/", {"asks": {"loader": [question]}, "end": time.monotonic() + 90})
    (found,) = reading["runs"]
    return found


def test_the_cpu_time_of_all_descendants_counts() -> None:
    found = run([sys.executable, "-c", NESTED])
    assert (found["ended"], found["exit"], found["samples"]) == (True, 0, 10), found
    assert found["cpu_s"] >= 0.6


def test_a_loader_is_killed_with_its_children_at_its_time_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found = run([sys.executable, "-c", ENDLESS, str(pids)], seconds=min(60.0, 4.0 * slowness()))
    assert (found["ended"], found["exit"]) == (False, None), found
    assert found["samples"] >= 7 and found["samples"] % 7 in (0, 2, 5)
    assert found["cpu_s"] > 0 and found["processes"] >= 3
    for pid in pids.read_text().split():
        assert (
            not Path(f"/proc/{pid}").exists()
            or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
        )


def test_no_process_outlives_a_killed_probe(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    asker = os.fork()
    if not asker:
        try:
            run([sys.executable, "-c", ENDLESS, str(pids)])
        finally:
            os._exit(0)
    try:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    finally:
        os.kill(asker, signal.SIGKILL)
        os.waitpid(asker, 0)
    left = list(map(int, pids.read_text().split()))
    try:
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    finally:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_bytes_read_by_children_that_ended_count(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(3 << 20))
    code = "import subprocess; subprocess.run(['cat', 'data'], stdout=subprocess.DEVNULL)"
    found = run([sys.executable, "-c", code], folder=tmp_path)
    assert found["exit"] == 0, found
    assert 3 << 20 <= found["asked_b"] < 6 << 20
    assert found["read_b"] is not None


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["sh", "-c", "echo oops >&2; exit 3"], 3, "oops"),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["no-such-program-here"], 127, "not found"),
    ],
)
def test_the_reason_of_a_failed_loader_is_reported(words, exit_code, said) -> None:
    found = run(words)
    assert (found["exit"], found["ended"]) == (exit_code, True)
    assert said in found["complaint"]


def test_a_user_that_is_not_there() -> None:
    question = {"name": "x", "words": ["true"], "folder": "", "path": "", "seconds": 5.0,
                "user": "no-such-user"}  # fmt: skip
    (found,) = loader.collect("/", {"asks": {"loader": [question]}})["runs"]
    assert found["cpu_s"] is None
    assert "no-such-user" in found["errors"]["cpu_s"]


def test_only_on_a_running_machine(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        loader.collect(str(tmp_path), {"asks": {"loader": [{}]}})


@pytest.mark.parametrize(
    ("line", "samples"),
    [
        (b"samples 256", 256),
        (b"  samples: 256  ", 256),
        (b"samples=7", 7),
        (b'{"step": 3, "samples": 64}', 64),
        (b'{"samples": true}', None),
        (b'{"samples": -3}', None),
        (b'{"samples": 1.5}', None),
        (b'{"samples": ' + b"9" * 40 + b"}", None),
        (b'{"samples": 3', None),
        (b"[" * 4000 + b'"samples"', None),
        (b"samples 12 of 50", None),
        (b"loss 0.1", None),
        (b"samples " + b"1" * 5000, None),
        (b"\xff\xfe", None),
    ],
)
def test_lines_that_report_samples_are_parsed(line, samples) -> None:
    assert loader.samples_of(line) == samples
