"""What a node sends that is no evidence, and what a file is that is no bundle: neither costs the
evidence of the other nodes, and what is redacted names nobody."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.run import incident
from nodevet.run.saved import SavedEvidenceError, keep, replay

GOOD = b'{"schema": 1, "probe": "", "sections": {}}'
NO_EVIDENCE = [
    b"[]",
    b'{"sections": []}',
    b"not json",
    b"[" * 100_000,
    b"\xff{}",
    b'{"schema": 1, "probe": "", "sections": {"host": {"why": "\\ud800"}}}',
]


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("document", NO_EVIDENCE)
def test_a_node_that_sends_no_evidence_does_not_spoil_the_bundle_of_all(
    tmp_path: Path, document: bytes, redact: bool
) -> None:
    path = tmp_path / "bundle.json.gz"
    sent = {"bad": document, "good": GOOD}
    visits = [
        (Visit(name, Status.VETTED, "", each), Host(name=name)) for name, each in sent.items()
    ]
    incident.write(path, visits, redact=redact)
    (bad, _), (good, _) = incident.read(path)
    assert (bad.status, bad.evidence) == (Status.PROBE_FAILED, None) and bad.why
    assert good.status is Status.VETTED and good.evidence


def test_nor_the_folder_of_all(tmp_path: Path) -> None:
    for name, document in {"bad": b"not json", "good": GOOD}.items():
        keep(Visit(name, Status.VETTED, "", document), Host(name=name), tmp_path)
    (bad, _), (good, _) = replay([tmp_path])
    assert (bad.status, bad.evidence) == (Status.PROBE_FAILED, None)
    assert "not an evidence document" in bad.why
    assert good.evidence


def test_nor_one_that_is_nested_too_deeply_to_be_redacted(tmp_path: Path) -> None:
    deep = GOOD.replace(b"{}}", b'{"host": ' + b"[" * 900 + b"]" * 900 + b"}}")
    visits = [(Visit(name, Status.VETTED, "", sent), Host(name=name))
              for name, sent in {"bad": deep, "good": GOOD}.items()]  # fmt: skip
    incident.write(tmp_path / "bundle.json", visits, redact=True)
    (bad, _), (good, _) = incident.read(tmp_path / "bundle.json")
    assert (bad.status, good.status) == (Status.PROBE_FAILED, Status.VETTED)


def test_a_redacted_bundle_has_no_fstab_and_no_swap_file(tmp_path: Path) -> None:
    memory = {
        "total_kb": 64,
        "swaps": [{"name": "/home/alice/swap"}],
        "fstab": [{"text": "nas01.example:/home /home nfs defaults 0 0", "owner": 0}],
        "swap_units": [{"name": "home-alice.swap", "what": "/home/alice/swap"}],
    }
    document = {"schema": 1, "probe": "", "sections": {"memory": {"status": "ok", "data": memory}}}
    path = tmp_path / "bundle.json"
    visit = Visit("n", Status.VETTED, "", json.dumps(document).encode())
    incident.write(path, [(visit, Host(name="n"))], redact=True)
    text = path.read_text()
    assert "total_kb" in text
    assert not [word for word in ("alice", "nas01", "/home") if word in text]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "bundle.json")
    with pytest.raises(SavedEvidenceError, match=r"bundle\.json: cannot be read: "):
        incident.read(tmp_path / "bundle.json")
