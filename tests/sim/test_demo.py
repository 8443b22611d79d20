"""`make demo`: from nothing to a report, and where it cannot run."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nodevet_sim.nspawn import place
from nodevet_sim.nspawn.needs import missing

DEMO = [sys.executable, "-m", "nodevet_sim.demo"]


def test_the_demo_reports_missing_programs_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("demo: ")
    assert "systemd-container" in done.stderr and "apt install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_root_rights_are_reported(tmp_path: Path) -> None:
    # a user namespace without a mapping: nobody's number, and this checkout can still be read
    script = "import os; assert os.geteuid() != 0; import nodevet.cli; nodevet.cli.main()"
    done = subprocess.run(
        ["unshare", "--user", sys.executable, "-c", script, "sim", "up", "demo"],
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "need root" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("compiled_once")
def test_the_demo_vets_eight_nodes_and_leaves_a_report(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        DEMO, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with demo:
        out, err = demo.communicate(timeout=500)
    done = subprocess.CompletedProcess(DEMO, demo.returncode, out, err)
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads((tmp_path / "demo" / "run.json").read_text())
    status = {host["host"]: host["status"] for host in run["hosts"]}
    assert status == {f"gpu{index:03}": "vetted" for index in range(1, 8)} | {"gpu008": "timeout"}
    wrong = {
        host["host"]: {f["check"] for f in host["findings"] if f["verdict"] == "fail"}
        for host in run["hosts"]
        if host["status"] == "vetted"
    }
    assert wrong == {
        "gpu001": set(),
        "gpu002": set(),
        "gpu003": set(),  # waived
        "gpu004": {"power_limit", "cpu_governor"},
        "gpu005": {"gpu_lost", "gpu_count", "xid"},
        "gpu006": {"gpu_count"},
        "gpu007": {"throttle_reasons", "thermal", "ecc_errors", "persistence_mode"},
    }
    assert "<html" in (tmp_path / "demo" / "report.html").read_text()
    after = json.loads((tmp_path / "demo" / "run-after.json").read_text())
    mended = next(host for host in after["hosts"] if host["host"] == "gpu004")
    assert {finding["verdict"] for finding in mended["findings"]} <= {"ok", "not_applicable"}
    assert (tmp_path / "demo" / "fixed" / "journal.jsonl").stat().st_size > 0
    assert f"demo{demo.pid}" not in place.fleets()
    codes = {"check": 1, "report": 0}  # `sim up demo` is run by tests/test_console_blocks.py
    last = done.stdout.partition(" are kept:\n")[2]
    said = [shlex.split(line) for line in last.splitlines() if " nodevet" in line.replace("/", " ")]
    assert [words[1] for words in said] == [*codes, "sim"]
    for words in said[:2]:
        program = os.path.normpath(tmp_path / words[0])
        again = subprocess.run(
            [program, *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert again.returncode == codes[words[1]], again.stdout + again.stderr
