"""A key that an object of JSON has twice is found, however the text is written."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from random_json import values

from nodevet.base import typed
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.vet.use.saved import keep

TWICE = (
    '{"a":1,"a":1}',
    '{"a": 1, "a": 2}',
    '{"b":[{"c":{"a":1,"a":null}}]}',
    '{"a":1,"\\u0061":2}',
)


@pytest.mark.parametrize("text", TWICE)
def test_a_key_that_is_there_twice_is_named(text: str) -> None:
    assert typed.repeated_key(text.encode()) == "a"


@given(value=values)
def test_json_as_it_is_written_has_no_key_twice(value: Any) -> None:
    assert typed.repeated_key(json.dumps(value).encode()) == ""
    assert typed.repeated_key(json.dumps(value, indent=1).encode()) == ""


@given(value=values.filter(lambda value: isinstance(value, dict) and value))
def test_one_more_value_of_any_key_is_found(value: dict[str, Any]) -> None:
    key = next(iter(value))
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(value, separators=separators)
        assert typed.repeated_key(f"{text[:-1]},{json.dumps(key)}:0}}".encode()) == key


@pytest.mark.parametrize("text", ["", "{", '{"a":1,}', '{"a":1} {"a":1}', "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        typed.repeated_key(text.encode())


def test_saved_evidence_needs_no_look_at_each_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", None)  # which does that
    document = {"schema": 1, "probe": "0", "sections": {"host": {"status": "ok", "data": {}}}}
    evidence = json.dumps(document, separators=(",", ":")).encode()
    keep(Visit("a", Status.VETTED, evidence=evidence), Host(name="a"), tmp_path)
    assert typed.repeated_key((tmp_path / "a.json").read_bytes()) == ""
