"""Run all tests; run those that failed once more, one at a time, and name those that pass then.

.venv/bin/python .ci/tests.py            # exit 0 if all pass, by the second time at the latest
.venv/bin/python .ci/tests.py --strict   # exit 1 if a test passes only the second time
"""

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache")
FAILED = CACHE / "v" / "cache" / "lastfailed"
ALL = ("-n", "3", "--dist", "loadscope", "--no-loadscope-reorder")
AGAIN = ("-v", "--last-failed", "--last-failed-no-failures", "none")
SOME_FAILED = 1  # of pytest's exit codes; the others are no test's fault


def main() -> int:
    code = pytest(*ALL)
    if code != SOME_FAILED:
        return code
    before = failed()
    say("once more, what failed, one at a time:")
    code = pytest(*AGAIN)
    unsteady = sorted(before - failed()) if code in (0, SOME_FAILED) else []
    if unsteady:
        say(f"passed only the second time: {', '.join(unsteady)}")
    return code or int(bool(unsteady) and "--strict" in sys.argv[1:])


def pytest(*options: str) -> int:
    words = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *options]
    return subprocess.run(words, check=False).returncode


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def failed() -> set[str]:
    """The tests that failed in the last run that had them."""
    return set(json.loads(FAILED.read_text(encoding="utf-8"))) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main())
