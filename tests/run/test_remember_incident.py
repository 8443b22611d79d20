"""Incident bundles in the history of their hosts."""

import json
from pathlib import Path

import five_nights
import pytest
from click.testing import CliRunner

from nodevet.cli import nodevet
from nodevet.diagnose.incident import remember
from nodevet.diagnose.model import Cause, Confidence, Diagnosis, GpuDiagnosis, HostDiagnosis
from nodevet.model import Status
from nodevet.store import open_store

GPU = GpuDiagnosis(
    index=3, cause=Cause.STORAGE, confidence=Confidence.HIGH, sentence="waits", next_step=""
)
FOUND = Diagnosis(
    id="x",
    nodevet="0",
    started="2026-11-20T09:00:00+00:00",
    seconds=10,
    hosts=(HostDiagnosis(host="gpu003", status=Status.VETTED, gpus=(GPU,)),),
)


def test_a_bundle_is_in_the_history_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    bundle = tmp_path / "gpu003.json.gz"
    bundle.write_bytes(b"all of it")
    monkeypatch.setenv("NODEVET_STORE", url)
    assert remember(FOUND, bundle) == "" and not (tmp_path / "history.sqlite").exists()
    with monkeypatch.context() as without:
        without.setenv("NODEVET_STORE", "none")
        assert remember(FOUND, bundle) == ""
    five_nights.record(url)
    assert remember(FOUND, bundle) == ""
    told = CliRunner().invoke(nodevet, ["history", "gpu003", "--format", "json"]).stdout
    last = json.loads(told)["events"][-1]
    assert (last["kind"], last["text"]) == ("diagnosed", "GPU 3: storage-bound")
    with open_store(url) as store:
        (incident,) = store.incidents("gpu003")
        assert store.bundle(incident) == b"all of it"


def test_a_file_that_is_not_a_store_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle").write_bytes(b"")
    (tmp_path / "text").write_text("no database, and long enough to be looked at" * 9)
    monkeypatch.setenv("NODEVET_STORE", f"sqlite:///{tmp_path}/text")
    assert "text" in remember(FOUND, tmp_path / "bundle")
