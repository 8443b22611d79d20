"""Nothing but what is known to have stood before passes `--fail-on new`; no part is the whole."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from answering_fleet import HOSTS, AnsweringFleet, Change, capped, left_in_the_middle, saving

from nodevet.base.age import instant
from nodevet.store import open_store

pytestmark = pytest.mark.timeout(300)
BY_HAND = ("check", "-i", "fleet.yaml", "-b", "site.yaml")


def killed_in_the_reports(fleet: AnsweringFleet) -> None:
    left_in_the_middle(fleet, without=0)


def test_in_the_first_sweep_every_failure_counts_as_new(fleet: AnsweringFleet) -> None:
    fleet.night({"gpu003": capped})
    assert fleet.run(*BY_HAND).returncode == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


def test_a_sweep_of_some_hosts_does_not_mark_failures_of_others_as_known(
    fleet: AnsweringFleet,
) -> None:
    fleet.run("sweep")
    fleet.night({"gpu003": capped})
    fleet.run(*BY_HAND)
    assert fleet.run("sweep", "--limit", "gpu001", "--fail-on", "new").returncode == 0
    whole = fleet.run("sweep", "--fail-on", "new")
    assert (whole.returncode, "gpu003 GPU 0-7  NEW" in whole.stdout) == (1, True)
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


def test_findings_of_a_killed_run_count_as_new(fleet: AnsweringFleet) -> None:
    fleet.run(*BY_HAND)
    fleet.night({"gpu003": capped})
    fleet.run(*BY_HAND)
    killed_in_the_reports(fleet)
    assert fleet.run(*BY_HAND, "--limit", "gpu001", "--fail-on", "new").returncode == 0
    assert fleet.run(*BY_HAND, "--fail-on", "new").returncode == 1
    assert fleet.run(*BY_HAND, "--fail-on", "new").returncode == 0


def test_a_failure_with_a_raised_severity_is_new(fleet: AnsweringFleet) -> None:
    fleet.night({"gpu004": saving})
    fleet.run("sweep")
    text = (fleet.folder / "site.yaml").read_text()
    (fleet.folder / "site.yaml").write_text(text + "severity: {cpu_governor: critical}\n")
    assert fleet.run("sweep", "--fail-on", "new:critical").returncode == 1
    assert fleet.run("sweep", "--fail-on", "new:critical").returncode == 0


def test_an_interrupted_run_does_not_count_as_a_complete_one(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    left_in_the_middle(fleet, without=3)
    done = fleet.run("check", "--from-run", "last", "-b", "site.yaml")
    assert (done.returncode, "the run was interrupted" in done.stdout) == (3, True)
    assert "did not reach 3 of its 6 hosts" in done.stderr
    named = fleet.run("check", "--from-run", "last", "-b", "site.yaml", "-i", "fleet.yaml")
    assert (named.returncode, "6 hosts: 3 ok, 3 probe failed" in named.stdout) == (3, True)


def test_a_run_is_resumed_with_all_its_hosts(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    left_in_the_middle(fleet, without=3)
    words = (*BY_HAND, "--resume", "last")
    some = fleet.run(*words, "--limit", "gpu001")
    assert (some.returncode, some.stdout) == (2, "")
    assert "began with 6 hosts, and 1 are named now" in some.stderr
    done = fleet.run(*words)
    assert (done.returncode, "All ok: 6 hosts" in done.stdout) == (0, True)


def machine(number: int) -> Change:
    """It has the ids of this host."""

    def change(sections: dict[str, Any]) -> None:
        sections["host"]["data"] |= dict.fromkeys(("machine_id", "boot_id"), f"{number:032x}")

    return change


def test_a_resumed_run_fails_one_machine_with_a_name_in_both_parts(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    left_in_the_middle(fleet, without=1)
    fleet.night({host: machine(at % len(HOSTS) + 1) for at, host in enumerate(HOSTS, 1)})
    done = fleet.run(*BY_HAND, "--resume", "last", "--format", "table", "--format=json:run.json")
    assert (done.returncode, "6 hosts: 4 ok, 2 fail" in done.stdout) == (1, True), done
    run = json.loads((fleet.folder / "run.json").read_text())
    news = [(each["host"], each["check"]) for each in run["news"]["standing"]]
    assert len(news) == 2
    assert {check for _, check in news} == {"host_identity"}


def test_a_run_of_long_ago_is_not_resumed(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    left_in_the_middle(fleet, without=3)
    began = time.time() - 2 * 86400
    with closing(sqlite3.connect(Path(fleet.state) / "nodevet/history.sqlite")) as store, store:
        store.execute("update run set started = ?, began = ?", (began, instant(began)))
    done = fleet.run(*BY_HAND, "--resume", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the run is 2 d old; start another run" in done.stderr


def test_a_resumed_run_fails_what_a_baseline_of_today_finds(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    fleet.run("sweep")
    killed_in_the_reports(fleet)
    text = (fleet.folder / "site.yaml").read_text()
    (fleet.folder / "site.yaml").write_text(text.replace("700", "650"))
    done = fleet.run(*BY_HAND, "--resume", "last", "--fail-on", "new")
    assert done.returncode == 1


def test_findings_without_a_written_report_count_as_new(fleet: AnsweringFleet) -> None:
    (fleet.folder / "reports").mkdir()
    fleet.settings('outputs = { json = "reports/last.json" }\n')
    fleet.run("sweep")
    fleet.night({"gpu003": capped})
    script = fleet.answers / "gpu001"
    text = script.read_text()
    away = f"import shutil; shutil.rmtree({str(fleet.folder / 'reports')!r}, True)\n"
    script.write_text(text.replace("stdin, stdout", f"{away}stdin, stdout", 1))
    assert fleet.run("sweep", "--fail-on", "new").returncode == 2
    script.write_text(text)
    (fleet.folder / "reports").mkdir()
    assert fleet.run("sweep", "--fail-on", "new").returncode == 1
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0


def test_unreported_findings_are_new(fleet: AnsweringFleet) -> None:
    """Killed after all is recorded, while the report waits for someone who reads it."""
    fleet.run(*BY_HAND)
    fleet.night({"gpu003": capped})
    read, write = os.pipe()
    os.set_blocking(write, False)
    for size in (4096, 1):  # until not a byte more fits
        while True:
            try:
                os.write(write, b"." * size)
            except BlockingIOError:
                break
    os.set_blocking(write, True)
    environment = {**os.environ, "HOME": str(fleet.folder)}
    check = subprocess.Popen(
        [sys.executable, "-m", "nodevet", *BY_HAND],
        cwd=fleet.folder,
        env=environment,
        stdout=write,
        stderr=subprocess.DEVNULL,
    )
    try:
        with closing(sqlite3.connect(Path(fleet.state) / "nodevet/history.sqlite")) as store:
            for _ in range(600):
                ended = store.execute("select count(*) from run where state = 'complete'")
                if ended.fetchone() == (2,):
                    break
                time.sleep(0.1)
            else:
                pytest.fail("the second run was not recorded")
        assert check.poll() is None
    finally:
        check.kill()
        check.wait()
        os.close(write)
        os.close(read)
    assert fleet.run(*BY_HAND, "--fail-on", "new").returncode == 1
    assert fleet.run(*BY_HAND, "--fail-on", "new").returncode == 0


def test_a_resumed_run_names_hosts_that_are_one_machine(fleet: AnsweringFleet) -> None:
    """One of them was recorded before the run was killed, the other one is visited now."""
    fleet.run("sweep")
    left_in_the_middle(fleet, without=5)
    with open_store() as store:
        (recorded,) = (visit.host for visit in store.visits("last"))
    left = next(host for host in HOSTS if host != recorded)
    machine = f"{int(recorded[3:]):032x}"

    def same(sections: dict[str, Any]) -> None:
        sections["host"]["data"] |= {"machine_id": machine, "boot_id": machine}

    fleet.night({left: same})
    done = fleet.run(*BY_HAND, "--resume", "last")
    assert done.returncode == 1
    assert f"{min(left, recorded)}, {max(left, recorded)} are one machine" in done.stdout
    with open_store() as store:
        assert {span.host for span in store.spans(run=store.run().id)} == {left, recorded}
        assert sorted(visit.host for visit in store.visits("last")) == list(HOSTS)


def test_a_resumed_run_says_what_was_fixed_since_the_host_last_answered(
    fleet: AnsweringFleet,
) -> None:
    fleet.night({"gpu001": capped})
    fleet.run("sweep")
    fleet.night(gone=["gpu001"])
    fleet.run("sweep")
    fleet.night()
    fleet.run("sweep")
    killed_in_the_reports(fleet)
    told = fleet.run(*BY_HAND, "--resume", "last").stdout
    assert "fixed: 8" in told and "hosts judged again: 1" in told
