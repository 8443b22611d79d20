"""The fields that ai-cloud-validation reads for BFX02-03 and BFX03-01, from the five nights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import five_nights
import msgspec
import pytest

from nodevet.base.age import seconds_of
from nodevet.base.errors import UserError
from nodevet.model import Status
from nodevet.past.use.breakfix import find_break_fix
from nodevet.store import open_store
from nodevet.store.records.model import RunState

Say = Callable[..., str]


@pytest.fixture(scope="module")
def document(remembered: str) -> dict[str, Any]:
    with open_store(remembered, create=False) as store:
        found: dict[str, Any] = json.loads(msgspec.json.encode(find_break_fix(store, ())))
    return found


def test_every_record_has_entries_and_every_part_an_identifier(document: dict[str, Any]) -> None:
    assert document["success"] is document["history_queryable"] is True
    assert document["machines_checked"] == len(document["machines"]) > len(document["records"]) > 0
    for record in document["records"]:
        assert record["machine_id"] and record["entries"]
        assert all(entry["status"] and entry["message"] for entry in record["entries"])
        assert [e["updated_at"] for e in record["entries"]] == sorted(
            entry["updated_at"] for entry in record["entries"]
        )
    for machine in document["machines"]:
        assert set(machine["components"]) <= {"gpu", "nic", "drive"}
        for component in machine["components"].values():
            assert component["present"] is True and component["identifiers"]


def test_a_repair_says_when_the_fault_began_and_what_was_done(document: dict[str, Any]) -> None:
    records = {one["machine_id"]: one["entries"] for one in document["records"]}
    fixed = next(entry for entry in records["a100-02"] if entry["status"] == "fixed")
    assert fixed["category"] == "cpu_governor" and fixed["plan"] == "5f1c00aa"
    assert fixed["opened_at"] < fixed["updated_at"]
    assert fixed["action"].endswith("powersave → performance")


def test_parts_say_when_nodevet_last_saw_them(document: dict[str, Any], remembered: str) -> None:
    """A machine that nobody visits any more is not present for ever."""
    seen = {one["machine_id"]: one["updated_at"] for one in document["machines"]}
    with open_store(remembered, create=False) as store:
        for host, at in seen.items():
            vetted = [visit for visit in store.visits_of(host) if visit.status is Status.VETTED]
            assert seconds_of(at) == seconds_of(max(visit.arrived for visit in vetted))
    assert len(set(seen.values())) > 1


def test_a_swapped_gpu_is_reported_on_both_machines(document: dict[str, Any]) -> None:
    records = {one["machine_id"]: one["entries"] for one in document["records"]}
    parts = {one["machine_id"]: one["components"] for one in document["machines"]}
    gone, came = [e for e in records["gpu003"] if e["status"].startswith("part")]
    assert (gone["status"], came["status"]) == ("part out", "part in")
    assert gone["component_id"] not in parts["gpu003"]["gpu"]["identifiers"]
    assert came["component_id"] in parts["gpu003"]["gpu"]["identifiers"]
    assert len(parts["gpu003"]["gpu"]["identifiers"]) == 8


def test_unknown_values_have_no_field(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for word in ("ticket", "account", "handover", "chassis", "baseboard", '"cpu"', "null", '""'):
        assert word not in text


def test_the_record_can_be_limited_to_hosts_and_redacted(say: Say) -> None:
    chosen = json.loads(say("history", "breakfix", "gpu[003,009]", "--format", "json"))
    assert [one["machine_id"] for one in chosen["machines"]] == ["gpu003", "gpu009"]
    redacted = say("history", "breakfix", "gpu003", "--redact", "--format", "json")
    assert "gpu003" not in redacted and "gpu007" not in redacted and "part out" in redacted
    assert "gpu003" in say("history", "breakfix", "gpu003")
    with pytest.raises(UserError, match="no host 'gpu999' is known; did you mean gpu009"):
        say("history", "breakfix", "gpu999")


def test_a_store_without_a_visit_makes_no_record_of_success(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    with open_store(url) as store:
        store.begin(five_nights.recorded_run(five_nights.run(1, []), RunState.RUNNING))
    with open_store(url, create=False) as store, pytest.raises(UserError, match="no host"):
        find_break_fix(store, ())
