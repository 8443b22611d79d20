"""The fields that ai-cloud-validation reads for BFX02-03 and BFX03-01, from the five nights."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodevet.base.errors import UserError
from nodevet.past.use.breakfix import find_break_fix
from nodevet.store import open_store

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


def test_a_swapped_gpu_is_told_on_both_machines(document: dict[str, Any]) -> None:
    records = {one["machine_id"]: one["entries"] for one in document["records"]}
    parts = {one["machine_id"]: one["components"] for one in document["machines"]}
    gone, came = [e for e in records["gpu003"] if e["status"].startswith("part")]
    assert (gone["status"], came["status"]) == ("part out", "part in")
    assert gone["component_id"] not in parts["gpu003"]["gpu"]["identifiers"]
    assert came["component_id"] in parts["gpu003"]["gpu"]["identifiers"]
    assert len(parts["gpu003"]["gpu"]["identifiers"]) == 8


def test_what_nodevet_does_not_know_has_no_field(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for word in ("ticket", "account", "handover", "chassis", "baseboard", '"cpu"', "null", '""'):
        assert word not in text


def test_hosts_are_chosen_and_names_left_out(say: Say) -> None:
    chosen = json.loads(say("history", "breakfix", "gpu[003,009]", "--format", "json"))
    assert [one["machine_id"] for one in chosen["machines"]] == ["gpu003", "gpu009"]
    redacted = say("history", "breakfix", "gpu003", "--redact", "--format", "json")
    assert "gpu003" not in redacted and "gpu007" not in redacted and "part out" in redacted
    assert "gpu003" in say("history", "breakfix", "gpu003")
    with pytest.raises(UserError, match="no host 'gpu999' is known; did you mean gpu009"):
        say("history", "breakfix", "gpu999")
