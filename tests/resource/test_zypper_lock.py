"""Commands that need zypper's lock, by the real zypper on a root of the test."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_tools import ROOT

from nodevet.resource.core import RunCommand
from nodevet.resource.package import rpm

ZYPPER = ROOT / "zypper"
HELD = "a.x86_64=1-1"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root in which another process has zypper's lock: a sleep."""
    if not ZYPPER.is_dir():
        pytest.skip(f"no {ZYPPER}: .ci/node-tools unpacks it")
    for name in ("run", "etc/zypp", "var/lib/rpm"):
        (tmp_path / name).mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as holder:
        (tmp_path / "run/zypp.pid").write_text(f"{holder.pid}\n")
        yield tmp_path
        holder.kill()


def on(root: Path, action: RunCommand) -> subprocess.CompletedProcess[str]:
    """The action on that root, with a second in place of 5 minutes."""
    at = action.words.index("zypper")
    words = [word.replace("=300", "=1") for word in action.words[:at]]
    words += [str(ZYPPER / "usr/bin/zypper"), f"--root={root}", *action.words[at + 1 :]]
    libraries = {str(file.parent) for file in ZYPPER.rglob("*.so*")}
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}
    return subprocess.run(words, capture_output=True, text=True, env=env)


def test_locking_a_package_waits_for_zyppers_own_lock(root: Path) -> None:
    """zypper then says how long it waited for; without the variable it ends at once."""
    for action in (*rpm.lock("zypper", [HELD]), *rpm.unlock("zypper", [HELD])):
        assert action.words[:2] == ("env", "ZYPP_LOCK_TIMEOUT=300") and action.seconds == 600
        assert rpm.is_lock(action.words)
        done = on(root, action)
        assert (done.returncode, "is locked" in done.stderr) == (7, True), done
    (root / "run/zypp.pid").unlink()
    (lock,) = rpm.lock("zypper", [HELD])
    assert on(root, lock).returncode == 0
    assert "solvable_name: a\n" in (root / "etc/zypp/locks").read_text()
