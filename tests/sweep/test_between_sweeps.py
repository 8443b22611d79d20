"""What happens between two sweeps, and beside one, that share a store."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from answering_fleet import AnsweringFleet, capped, waits_for

from nodevet.vet.use.sweep_lock import HELD

pytestmark = pytest.mark.timeout(300)
SITE = ("-i", "fleet.yaml", "-b", "site.yaml")


def test_what_was_fixed_by_hand_is_reported_by_the_next_sweep(fleet: AnsweringFleet) -> None:
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
        for _ in range(1200):
            if "nightly" in fleet.run("runs", *store).stdout:
                break
            time.sleep(0.1)
        other = {"XDG_STATE_HOME": str(fleet.folder / "other")}
        second = fleet.run("sweep", *store, "--heartbeat", "beat.prom", **other)
        first.kill()
    assert not (fleet.folder / "beat.prom").exists()  # it did not begin
    assert second.returncode == HELD
    assert f"nightly is being swept by process {first.pid} on " in second.stderr
    assert "shared.sqlite" in second.stderr
    fleet.script("gpu006")
    assert fleet.run("sweep", *store, "--limit", "gpu001", **other).returncode == 0


def test_the_time_of_a_visit_counts_not_the_start_of_the_run(fleet: AnsweringFleet) -> None:
    """A check by hand began before a sweep, and comes to a host after it."""
    fleet.run("sweep")
    late = waits_for(fleet, "gpu003", "go")
    words = ("check", "-i", late, "-b", "site.yaml", "--limit", "gpu003", "--deadline", "100s")
    with subprocess.Popen(
        [sys.executable, "-m", "nodevet", *words], cwd=fleet.folder, stdout=-3, stderr=-3
    ) as by_hand:
        with closing(sqlite3.connect(Path(fleet.state) / "nodevet/history.sqlite")) as store:
            while not store.execute("select 1 from run where state = 'running'").fetchone():
                time.sleep(0.05)
        assert fleet.run("sweep", "--fail-on", "new").returncode == 0
        fleet.night({"gpu003": capped})
        (fleet.folder / "go").touch()
        assert by_hand.wait(100) == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


def test_a_clock_that_was_set_back_hides_nothing_and_repeats_nothing(
    fleet: AnsweringFleet,
) -> None:
    def back() -> None:
        """A day later than it is, said the clock in all that is recorded."""
        with closing(sqlite3.connect(Path(fleet.state) / "nodevet/history.sqlite")) as store:
            store.execute("update run set started = started + 86400, name = '3' || name")
            store.execute("update visit set at = at + 86400")
            store.commit()

    fleet.run("sweep")
    back()
    fleet.night({"gpu003": capped})
    assert fleet.run("check", *SITE).returncode == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 1
    back()
    done = fleet.run("sweep", "--fail-on", "new")
    assert (done.returncode, "new since last run: 0" in done.stdout) == (0, True)
    fleet.night()
    assert "fixed: 8" in fleet.run("sweep").stdout
