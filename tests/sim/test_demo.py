"""`make demo` where it cannot run."""

import subprocess
import sys
from pathlib import Path


def test_a_missing_compiler_is_told_in_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodevet.sim.demo"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("demo: gcc is not installed")
    assert done.stderr.count("\n") == 1
