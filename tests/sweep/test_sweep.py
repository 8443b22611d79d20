"""`nodevet sweep` and recorded checks, night after night, over real SSH."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from answering_fleet import HOSTS, AnsweringFleet, capped, replaced, saving

pytestmark = pytest.mark.timeout(300)


def test_the_all_option_lists_passed_checks_in_files_of_a_sweep_and_a_gate(
    fleet: AnsweringFleet,
) -> None:
    fleet.settings('outputs = { json = "last.json", jsonl = "last.jsonl" }\n')
    gate = ("gate", "-i", "fleet.yaml", "-b", "site.yaml", "--wait", "1s", "--settle", "0s")
    for more, listed, counted in (((), 0, 17), (("--all",), 17, 0)):
        assert fleet.run("sweep", *more).returncode == 0
        assert fleet.run(*gate, "--verdict", "verdict.json", *more).returncode == 0
        rows = (fleet.folder / "last.jsonl").read_text().splitlines()
        run, verdict = (
            json.loads((fleet.folder / name).read_text()) for name in ("last.json", "verdict.json")
        )
        hosts = [row for row in map(json.loads, rows) if row["record"] == "host"]
        for host in (*run["hosts"], *verdict["run"]["hosts"], *hosts):
            assert len(host["findings"]) == listed
            assert sum(each["count"] for each in host.get("counted", ())) == counted


def test_findings_are_reported_as_new_then_standing_then_fixed(fleet: AnsweringFleet) -> None:
    fleet.settings('outputs = { json = "last.json", prometheus = "n.prom", junit = "j.xml" }\n')
    first = fleet.run("sweep", "--fail-on", "new")
    told = "nodevet: nightly: the first recorded sweep; nothing is marked as new\n"
    assert (first.returncode, first.stderr) == (0, told)
    assert "All ok: 6 hosts · 102 findings judged" in first.stdout
    fleet.night({"gpu003": capped}, gone=["gpu005"])
    second = fleet.run("sweep", "--fail-on", "new")
    assert second.returncode == 1
    assert "gpu003 GPU 0-7  NEW" in second.stdout
    assert "new since last run: 9" in second.stdout
    fleet.night({"gpu003": capped, "gpu004": saving}, gone=["gpu005"])
    third = fleet.run("check", "-i", "fleet.yaml", "-b", "site.yaml", "--limit", "gpu[003-005]")
    assert third.returncode == 1
    assert "gpu003 GPU 0-7" in third.stdout
    assert "since " in third.stdout.split("gpu003 GPU 0-7")[1]
    assert "new since last run: 1" in third.stdout
    fleet.night({"gpu003": capped, "gpu004": saving})
    fourth = fleet.run("sweep", "--fail-on", "new:critical")
    assert fourth.returncode == 0  # what is new is a warning
    (governor,) = [row for row in fourth.stdout.splitlines() if "FAIL  cpu_governor" in row]
    assert "NEW" in governor  # to who reads the sweeps, not to who checked by hand
    assert "hosts judged again: 1" in fourth.stdout
    assert fleet.run("sweep", "--fail-on", "new").returncode == 0
    assert fleet.run("sweep").returncode == 1
    assert (
        'nodevet_check_since_timestamp_seconds{check="power_limit",host="gpu003"}'
        in (fleet.folder / "n.prom").read_text()
    )
    assert "seen: since" in (fleet.folder / "j.xml").read_text()
    fleet.night()
    assert "fixed: 9" in fleet.run("sweep").stdout
    news = json.loads((fleet.folder / "last.json").read_text())["news"]
    assert {each["host"] for each in news["ended"]} == {"gpu003", "gpu004"}
    again = fleet.run("report", "last.json", "--format", "markdown")
    assert "| `fixed` | 9 | `gpu[003-004]` |" in again.stdout


def test_another_machine_of_the_same_name_inherits_nothing(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    fleet.night({"gpu003": capped})
    fleet.run("sweep")
    fleet.night({"gpu003": lambda sections: (capped(sections), replaced(sections))})
    done = fleet.run("sweep", "--fail-on", "new")
    assert done.returncode == 1
    assert "gpu003 GPU 0-7  NEW" in done.stdout
    assert "hosts replaced: 1" in done.stdout


def test_if_many_hosts_fail_a_check_at_once_the_rule_is_suspected(fleet: AnsweringFleet) -> None:
    fleet.settings('outputs = { json = "last.json", html = "r.html", nagios = "n.txt" }\n')
    fleet.run("sweep")
    text = (fleet.folder / "site.yaml").read_text()
    (fleet.folder / "site.yaml").write_text(text.replace("700", "650"))
    done = fleet.run("sweep")
    first = " ".join(done.stdout.split("\n\n")[0].split())
    assert first == (
        "SUSPICIOUS: 6 of 6 hosts begin to fail power_limit at once: suspect the rule, the "
        "controller or the site first (baseline site has changed since): gpu[001-006]"
    )
    assert "SUSPICIOUS: 6 of 6" in (fleet.folder / "r.html").read_text()
    assert "SUSPICIOUS: 6 of 6" in (fleet.folder / "n.txt").read_text()
    assert "SUSPICIOUS" not in fleet.run("sweep").stdout


def test_a_sweep_reports_even_if_the_store_fails(fleet: AnsweringFleet) -> None:
    fleet.run("sweep", "--store", "sqlite:///s.sqlite")
    fleet.night({"gpu003": capped})
    with sqlite3.connect(fleet.folder / "s.sqlite") as other:
        full = "begin select raise(abort, 'database or disk is full'); end"
        other.execute(f"create trigger full before insert on visit {full}")
    done = fleet.run("sweep", "--store", "sqlite:///s.sqlite")
    assert done.returncode == 2
    assert "gpu003 GPU 0-7" in done.stdout
    assert done.stderr.count("s.sqlite") == 1
    assert "no space is left" in done.stderr
    (fleet.folder / "kept").write_text("")
    lost = fleet.run("sweep", "--store", "sqlite:///kept/s.sqlite")
    assert (lost.returncode, "gpu003 GPU 0-7" in lost.stdout) == (2, True)
    assert "this run is not recorded" in lost.stderr


def test_a_killed_run_is_finished(fleet: AnsweringFleet) -> None:
    fleet.run("sweep")
    fleet.night({"gpu001": capped, "gpu006": capped})
    (fleet.answers / "gpu006").write_text("#!/bin/sh\nexec sleep 120\n")
    words = [sys.executable, "-m", "nodevet", "check", "-i", "fleet.yaml", "-b", "site.yaml"]
    with subprocess.Popen(words, cwd=fleet.folder, stdout=-3, stderr=-3) as began:
        store = Path(fleet.state) / "nodevet/history.sqlite"
        for _ in range(1200):
            with closing(sqlite3.connect(store)) as reader:
                if reader.execute("select count(*) from visit").fetchone()[0] >= len(HOSTS) + 5:
                    break
            time.sleep(0.1)
        began.kill()
    fleet.script("gpu006")
    done = fleet.run("check", "--resume", "-i", "fleet.yaml", "-b", "site.yaml", "--format=json")
    assert done.returncode == 1
    run = json.loads(done.stdout)
    assert sorted(host["host"] for host in run["hosts"]) == list(HOSTS)
    assert {each["host"] for each in run["news"]["standing"] if each["new"]} == {"gpu001", "gpu006"}
    assert "is complete" in fleet.run("check", "--resume", run["id"], "-i", "fleet.yaml").stderr
