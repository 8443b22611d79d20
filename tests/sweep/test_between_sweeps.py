"""What happens between two sweeps, and beside one, that share a store."""

import subprocess
import sys
import time

import pytest
from answering_fleet import AnsweringFleet, capped

from nodevet.run.sweep_lock import HELD

pytestmark = pytest.mark.timeout(300)
SITE = ("-i", "fleet.yaml", "-b", "site.yaml")


def test_what_was_fixed_by_hand_is_told_by_the_next_sweep(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    fleet.night({"gpu003": capped, "gpu004": capped})
    fleet.run("sweep")
    fleet.night({"gpu004": capped})
    assert "fixed: 8" in fleet.run("check", *SITE).stdout
    done = fleet.run("sweep")
    assert "fixed: 8" in done.stdout
    fleet.night({"gpu003": capped})
    fleet.run("check", *SITE)
    fleet.night({"gpu004": capped})
    fleet.run("check", *SITE)
    told = fleet.run("sweep").stdout
    assert "new since last run: 8" in told  # it went and came again
    assert "fixed" not in told  # nor was gpu003 seen by a sweep
    fleet.night()
    assert "fixed: 8" in fleet.run("sweep").stdout
    assert "fixed" not in fleet.run("sweep").stdout


def test_another_user_of_the_same_store_waits(fleet: AnsweringFleet) -> None:
    (fleet.answers / "gpu006").write_text("#!/bin/sh\nexec sleep 60\n")
    store = ("--store", "sqlite:///shared.sqlite")
    words = [sys.executable, "-m", "nodevet", "sweep", *store]
    with subprocess.Popen(words, cwd=fleet.folder, stdout=-3, stderr=-3) as first:
        for _ in range(300):
            if "nightly" in fleet.run("runs", *store).stdout:
                break
            time.sleep(0.1)
        other = {"XDG_STATE_HOME": str(fleet.folder / "other")}
        second = fleet.run("sweep", *store, **other)
        first.kill()
    assert second.returncode == HELD
    assert f"nightly is being swept by process {first.pid} on " in second.stderr
    assert "shared.sqlite" in second.stderr
    fleet.script("gpu006")
    assert fleet.run("sweep", *store, "--limit", "gpu001", **other).returncode == 0
