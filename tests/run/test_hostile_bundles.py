"""What a node sends that is no evidence, and what a file is that is no bundle: neither costs the
evidence of the other nodes, and what is redacted names nobody."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from nodevet.base.outputs import FileError
from nodevet.diagnose import incident
from nodevet.diagnose.command import command
from nodevet.diagnose.use import diagnose_visits
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.vet.use.context import open_context
from nodevet.vet.use.saved import SavedEvidenceError, keep, replay

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
def test_a_node_that_sends_invalid_evidence_does_not_spoil_the_bundle(
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


def test_a_node_that_sends_invalid_evidence_does_not_spoil_the_evidence_folder(
    tmp_path: Path,
) -> None:
    for name, document in {"bad": b"not json", "good": GOOD}.items():
        keep(Visit(name, Status.VETTED, "", document), Host(name=name), tmp_path)
    (bad, _), (good, _) = replay([tmp_path])
    assert (bad.status, bad.evidence) == (Status.PROBE_FAILED, None)
    assert "not an evidence document" in bad.why
    assert good.evidence


def test_a_document_nested_too_deeply_to_redact_is_refused(tmp_path: Path) -> None:
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
def test_a_path_that_is_not_a_file_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "bundle.json")
    with pytest.raises(SavedEvidenceError, match=r"bundle\.json: cannot be read: "):
        incident.read(tmp_path / "bundle.json")


def test_a_pipe_or_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        incident.write(
            tmp_path / "pipe", [(Visit("n", Status.VETTED, "", GOOD), Host(name="n"))], redact=False
        )
        assert b'"nodevet_incident":1' in os.read(reader, 4096)
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_only_the_owner_can_read_a_bundle_written_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "bundle.json")
    visits = [(Visit("n", Status.VETTED, "", GOOD), Host(name="n"))]
    incident.write(tmp_path / "link", visits, redact=False)
    assert (tmp_path / "bundle.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link").is_symlink()


def test_a_bundle_that_could_not_be_written_is_reported_before_a_host_is_watched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "nowhere/bundle.json"
    words = ["@local", "--duration", "600s", "--capture", str(path), "--project", str(tmp_path)]
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, FileError)
    assert "nowhere does not exist" in str(result.exception)


def test_a_pipe_or_a_link_to_nowhere_in_a_folder_of_evidence_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n.json")
    ((pipe, _),) = replay([tmp_path])
    (tmp_path / "n.json").unlink()
    (tmp_path / "n.json").symlink_to(tmp_path / "nowhere")
    ((link, _),) = replay([tmp_path])
    assert (pipe.status, link.status) == (Status.UNREADABLE, Status.UNREADABLE)
    assert pipe.why == f"{tmp_path}/n.json: cannot be read: not a regular file"
    assert link.why == f"{tmp_path}/n.json: cannot be read: No such file or directory"


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    ((visit, _),) = replay([Path("/dev/zero")])
    assert visit.why == "/dev/zero: cannot be read: not a regular file"


@pytest.mark.parametrize("clock", [-(2**63), 1e300, -1e12, 4e11])
def test_an_invalid_clock_value_does_not_prevent_a_diagnosis(tmp_path: Path, clock: float) -> None:
    look = {"began_s": 1.7e9, "seconds": 1.0, "cost_s": 0.0}
    sections = {
        "host": {"clock_s": clock, "asked_s": 1.7e9},
        "host_activity": {"look": look},
    }
    told = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    document = json.dumps({"schema": 1, "probe": "", "sections": told}).encode()
    visits = [(Visit("n", Status.VETTED, "", document), Host(name="n", expect_hostname=False))]
    (host,) = diagnose_visits(visits, open_context(tmp_path, ())).hosts
    assert host.seconds == 1.0
