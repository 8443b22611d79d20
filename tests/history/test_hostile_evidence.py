"""One host that sends nonsense is no reason to tell nothing of the others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import five_nights
import pytest

from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.run.vet import judge_visit
from nodevet.store import open_store

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
            recorder = store.begin(five_nights.recorded(seen, five_nights.RunState.RUNNING))
            for report in reports:
                recorder.take(report, documents[report.host])
            recorder.finish(five_nights.recorded(seen, five_nights.RunState.COMPLETE))
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
def test_the_others_are_told_of(url: str, words: list[str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", *words, "--store", url],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout
