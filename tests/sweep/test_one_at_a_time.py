"""One sweep at a time, what keeps it going, and what notices if it does not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answering_fleet import AnsweringFleet
from prometheus_client.parser import text_string_to_metric_families

from nodevet.vet.use.sweep_lock import HELD

pytestmark = pytest.mark.timeout(300)


def test_a_second_sweep_says_who_holds_the_inventory(fleet: AnsweringFleet) -> None:
    (fleet.answers / "gpu006").write_text("#!/bin/sh\nexec sleep 60\n")
    words = [sys.executable, "-m", "nodevet", "sweep"]
    with subprocess.Popen(words, cwd=fleet.folder, stdout=-3, stderr=-3) as first:
        locks = Path(fleet.state) / "nodevet/locks"
        for _ in range(1200):
            if locks.is_dir() and any(path.stat().st_size for path in locks.iterdir()):
                break
            time.sleep(0.1)
        second = fleet.run("sweep")
        first.kill()
    assert second.returncode == HELD
    assert f"`nodevet sweep nightly`, process {first.pid}, since 20" in second.stderr
    assert str(fleet.folder / "fleet.yaml") in second.stderr
    fleet.script("gpu006")
    assert fleet.run("sweep", "--limit", "gpu001").returncode == 0  # it ended with its process


def test_the_heartbeat_file_says_when_the_sweep_began_and_ended(fleet: AnsweringFleet) -> None:
    fleet.settings('heartbeat = "beat.prom"\n')

    def beats() -> dict[str, float]:
        text = (fleet.folder / "beat.prom").read_text()
        families = text_string_to_metric_families(text)
        return {
            sample.name.removeprefix("nodevet_sweep_"): sample.value
            for family in families
            for sample in family.samples
        }

    fleet.run("sweep", "--limit", "gpu00[1-2]")
    first = beats()
    assert (first["exit_code"], first["hosts"], first["vetted_hosts"]) == (0, 2, 2)
    assert first["start_timestamp_seconds"] <= first["end_timestamp_seconds"]
    (fleet.folder / "fleet.yaml").write_text("broken")
    assert fleet.run("sweep").returncode == 2
    second = beats()
    assert second["start_timestamp_seconds"] > first["start_timestamp_seconds"]
    assert second["end_timestamp_seconds"] == first["end_timestamp_seconds"]


def test_systemd_accepts_the_units_of_a_sweep(fleet: AnsweringFleet) -> None:
    fleet.settings('within = "40m"\njitter = "10m"\nat = "*-*-* 02:30:00"\n')
    done = fleet.run("sweep", "nightly", "--install")
    assert done.returncode == 0
    service, _, timer = done.stdout.partition("\n# nodevet-sweep-nightly.timer\n")
    units = fleet.folder / "units"
    units.mkdir()
    (units / "nodevet-sweep-nightly.service").write_text(service)
    (units / "nodevet-sweep-nightly.timer").write_text(timer)
    files = sorted(map(str, units.iterdir()))
    verified = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    assert "RandomizedDelaySec=600" in timer
    assert "TimeoutStartSec=3000" in service
    (command,) = [row for row in service.splitlines() if row.startswith("ExecStart=")]
    words = command.removeprefix("ExecStart=").split()
    assert os.access(words[0], os.X_OK)
    assert "sweep nightly --config" in command


def test_two_sweeps_share_a_file_of_heartbeats(fleet: AnsweringFleet) -> None:
    both = 'inventory = "fleet.yaml"\nbaseline = "site.yaml"\nheartbeat = "beat.prom"\n'
    fleet.settings('heartbeat = "beat.prom"\n', head=f"[sweep.weekly]\n{both}")
    for name in ("weekly", "nightly", "weekly"):
        assert fleet.run("sweep", name, "--limit", "gpu001").returncode == 0
    text = (fleet.folder / "beat.prom").read_text()
    ended = {
        sample.labels["sweep"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "nodevet_sweep_end_timestamp_seconds"
    }
    assert 0 < ended["nightly"] < ended["weekly"]
    assert text.count("# TYPE nodevet_sweep_hosts gauge") == 1
