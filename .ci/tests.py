"""Run all tests; run those that failed once more, one at a time, and name those that pass then.

.venv/bin/python .ci/tests.py            # exit 0 if all pass, by the second time at the latest
.venv/bin/python .ci/tests.py --strict   # exit 1 if a test passes only the second time

If root runs them, their temporary files are in memory: to write the files of one described machine
takes up to a second on a disk, and a thirtieth of that in memory.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

CACHE = Path(".pytest_cache")
TESTS = Path("tests")
SOURCES = ("nodevet", "checks", "fixes", "sim", "tests/rigs")
FAILED = CACHE / "v" / "cache" / "lastfailed"
ALL = ("-n", "4", "--dist", "loadscope", "--no-loadscope-reorder")
"""Tests on nodes wait for boots and until settings settle: three at once leave two CPUs idle for a
quarter of the time. A worker takes 7 s of CPU time to collect the tests, and 400 MB of memory."""
AGAIN = ("-v", "--last-failed", "--last-failed-no-failures", "none")
SOME_FAILED = 1  # of pytest's exit codes; the others are no test's fault


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, interrupt)
    with temporary_files() as folder:
        return tested({**os.environ, "TMPDIR": folder})


def interrupt(number: int, _: object) -> NoReturn:
    """End as Ctrl-C does, so that nothing stays mounted."""
    sys.exit(128 + number)


@contextmanager
def temporary_files() -> Iterator[str]:
    """A folder for the files of all tests. As in /tmp, every user may write there."""
    with TemporaryDirectory(prefix="nv-") as folder:
        Path(folder).chmod(0o1777)
        mount = ["mount", "-t", "tmpfs", "-o", "mode=1777", "nodevet-tests", folder]
        mounted = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", folder], check=True)


def tested(environment: dict[str, str]) -> int:
    compile_sources()
    compile_tests()
    code = pytest(environment, *ALL)
    if code != SOME_FAILED:
        return code
    before = failed()
    if not all("::" in name for name in before):
        return code  # of a collection that failed: pytest would run every test again
    say("once more, what failed, one at a time:")
    code = pytest(environment, *AGAIN)
    unsteady = sorted(before - failed()) if code in (0, SOME_FAILED) else []
    if unsteady:
        say(f"passed only the second time: {', '.join(unsteady)}")
    return code or int(bool(unsteady) and "--strict" in sys.argv[1:])


def compile_sources() -> None:
    """Compile what changed since the set-up. Some machines keep no bytecode by themselves; there,
    every process that a test starts would compile it again."""
    subprocess.run([sys.executable, "-m", "compileall", "-qq", *SOURCES], check=False)


def compile_tests() -> None:
    """Let two processes compile the tests' modules, half each, unless they are compiled: otherwise
    every worker compiles all of them. The workers report what cannot be collected."""
    if any(TESTS.glob("__pycache__/*-pytest-*")):
        return
    folders = {path.parent for path in TESTS.glob("*/test_*.py")}
    nested = {path.parents[1] for path in TESTS.glob("*/*/test_*.py")}
    places = sorted({*TESTS.glob("test_*.py"), *folders, *nested})
    words = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    halves = filter(None, (places[::2], places[1::2]))
    running = [subprocess.Popen([*words, *half], stdout=subprocess.DEVNULL) for half in halves]
    for process in running:
        process.wait()


def pytest(environment: dict[str, str], *options: str) -> int:
    words = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *options]
    with subprocess.Popen(words, env=environment) as running:
        try:
            return running.wait()
        except BaseException:
            running.send_signal(signal.SIGINT)  # and wait: it ends what its tests started
            raise


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def failed() -> set[str]:
    """The tests that failed in the last run that had them."""
    return set(json.loads(FAILED.read_text(encoding="utf-8"))) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main())
