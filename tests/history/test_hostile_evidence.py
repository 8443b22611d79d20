"""One host that sends nonsense is no reason to tell nothing of the others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import five_nights
import pytest
from click.testing import CliRunner
from recorded import document, record, report

from nodevet.cli import nodevet
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.store import open_store
from nodevet.vet.use.judge_visit import judge_visit

GOOD, BAD = "gpu001", "gpu002"


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/history.sqlite"
    with open_store(found) as store:
        for night in (1, 2):
            documents = {
                GOOD: json.dumps(five_nights.document(GOOD, night)).encode(),
                BAD: b'["\\ud800' if night == 1 else b"[7]",
            }
            context = five_nights.context(night)
            reports = []
            for host, text in documents.items():
                visit = Visit(host, Status.VETTED, "", text, 1.0, 1.79e9 + 86400 * night)
                reports.append(judge_visit(visit, Host(name=host), context).report)
            seen = five_nights.run(night, reports)
            recorder = store.begin(five_nights.recorded_run(seen, five_nights.RunState.RUNNING))
            for report in reports:
                recorder.take(report, documents[report.host])
            recorder.finish(five_nights.recorded_run(seen, five_nights.RunState.COMPLETE))
            assert recorder.broken is None
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["diff"], "new: "),
        (["history", BAD], BAD),
        (["trend", "gpu.gpus[].power_limit_mw"], "700"),
    ],
)
def test_hostile_evidence_is_shown_by_history_commands(
    url: str, words: list[str], told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", *words, "--store", url],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout


def test_a_long_name_of_a_part_breaks_no_table(tmp_path: Path) -> None:
    found = f"sqlite:///{tmp_path}/long.sqlite"
    gpus = [{"uuid": f"{word} " * 400, "temperature_gpu_c": 40} for word in ("one", "two")]
    with open_store(found) as store:
        record(store, 0, report(), evidence=document(gpu={"gpus": gpus}))
    field = "gpu.gpus[].temperature_gpu_c"
    shown = CliRunner().invoke(nodevet, ["trend", field, "--host", "gpu001", "--store", found])
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) < 100
    assert "one one" in shown.stdout and "two two" in shown.stdout


def test_an_error_that_names_parts_escapes_control_characters(tmp_path: Path) -> None:
    found = f"sqlite:///{tmp_path}/hostile.sqlite"
    gpus = [{"index": n, "uuid": f"GPU-5e7a1c90\x1b[2J\u202e{n}"} for n in range(2)]
    with open_store(found) as store:
        record(store, 0, report(), evidence=document(gpu={"gpus": gpus}))
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", "history", "part", "GPU-5e", "--store", found],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "several parts: gpu GPU-5e7a1c90\\x1b[2J\\u202e" in done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_tab_offers_no_part_whose_id_a_shell_would_run(tmp_path: Path) -> None:
    found = f"sqlite:///{tmp_path}/hostile.sqlite"
    ids = ("GPU-5e7a1c90", "GPU-5e7a1c91$(reboot)", "GPU-5e7a1c92\nplain,x", "GPU-5e7a1c93 x")
    gpus = [{"index": n, "uuid": uuid, "name": "H100\nplain\nx"} for n, uuid in enumerate(ids)]
    with open_store(found) as store:
        record(store, 0, report(), evidence=document(gpu={"gpus": gpus}))
    line = f"nodevet history part --store {found} GPU-5e"
    asked = {"_NODEVET_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORDBREAKS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "nodevet"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["plain,GPU-5e7a1c90"]), done.stderr
