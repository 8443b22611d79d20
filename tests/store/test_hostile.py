"""What a hostile node says is kept, whatever is in it: NUL characters, halves of characters."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from recorded import document, ended, report, run, unreachable

from nodevet.model import Finding, Subject, Verdict
from nodevet.store import Store, StoreError, open_store

BAD = "a\0b\udc80c\ud800"


def test_no_text_breaks_a_store(store: Store):
    found = Finding(
        verdict=Verdict.FAIL,
        check="rule",
        subject=Subject(kind="gpu", id=BAD, uuid=BAD),
        actual={BAD: [BAD, 2**70]},
        why=BAD,
    )
    ok = Finding(verdict=Verdict.OK, check="rule", subject=Subject(kind="x", id=BAD))
    made = report(machine_id=BAD, boot_id=BAD, groups=(BAD,))
    made = replace(made, findings=(found, ok))
    gpus = [{"index": 0, "uuid": "GPU-7\0", "name": "a\0b", "serial": "\0"}]
    text = document(gpu={"gpus": gpus}, sysctl={"a\0": "\0"})
    begun = run(0, 3)
    recorder = store.begin(begun)
    recorder.take(made, text)
    recorder.take(unreachable("gpu002", why=BAD), b"\xff\0")
    recorder.take(unreachable(f"gpu003{BAD}"), None)
    recorder.finish(ended(begun))
    assert recorder.broken is None
    evidence = {visit.host: kept for visit, kept in store.evidence(begun.id)}
    assert json.loads(evidence["gpu001"] or b"") == json.loads(text)
    assert evidence["gpu002"] == b"\xff\0"
    (span, *_) = store.spans(check="rule")
    assert span.finding is not None and "\\x00" not in span.key
    assert [place.part.id for place in store.places()] == ["GPU-7\\x00"]
    assert len(store.check_verdicts(begun.id, "gpu001")) == 2
    assert next(store.visits(begun.id, hosts=["gpu001"])).groups != ()


def test_a_slip_in_an_address_shows_no_password():
    with pytest.raises(StoreError) as told:
        open_store("postgresql:/nodevet:hunter2@db/nodevet")
    assert "hunter2" not in str(told.value)
    assert "'***@db/nodevet' is not a URL of a store" in str(told.value)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://nodevet:hun@ter2@db/nodevet", "'***@db/nodevet' has more than one @"),
        ("postgresql://nodevet@db:hunter2/nodevet", "is not a URL of a store"),
        ("postgresql://db/nodevet?password=hunter2", "names no user"),
        ("postgresql://nodevet@db/nodevet?password=hunter2", "takes no password"),
        ("sqlite://nodevet:hunter2@db/nodevet", "names no file"),
        ("sqlite:///nodevet?password=hunter2", "names no file"),
    ],
)
def test_a_mistake_in_an_address_is_reported_without_secrets(address: str, told: str):
    with pytest.raises(StoreError) as said:
        open_store(address)
    assert told in str(said.value)
    assert "ter2" not in str(said.value)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("/srv/history.sqlite", "sqlite:////srv/history.sqlite"),
        ("./history.sqlite", "sqlite:///./history.sqlite"),
        ("history.sqlite", "sqlite:///history.sqlite"),
        ("sqlite:/srv/history.sqlite", "sqlite:////srv/history.sqlite"),
        ("file:///srv/history.sqlite", "sqlite:////srv/history.sqlite"),
        ("~/history.sqlite", "sqlite:////home/ann/history.sqlite"),
        ("sqlite:///~/history.sqlite", "sqlite:////home/ann/history.sqlite"),
    ],
)
def test_e21_a_path_for_a_store_is_reported_with_the_url_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, url: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    with pytest.raises(StoreError) as said:
        open_store(given)
    assert str(said.value).endswith(f"is a path, but a URL is needed: type {url}")


def test_e21_an_invalid_store_url_that_is_not_a_path_is_not_called_a_path():
    for given in ("mysql://db/x", "postgresql:/db", "db:5432/x", "sqlite://srv/x", ":memory:"):
        with pytest.raises(StoreError) as said:
            open_store(given)
        assert "is a path" not in str(said.value)
