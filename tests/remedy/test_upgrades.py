"""Plans, journals and results of an earlier schema are read through steps, one schema at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.base.upgrades import Document
from nodevet.fix import model
from nodevet.fix.journal import journal, records
from nodevet.fix.journal.records import JournalError, RunEnd
from nodevet.fix.plan import plan_file
from nodevet.fix.upgrades import UpgradeError, upgraded

World = Any


def plan_of_then(document: Document) -> Document:
    """An invented step: a plan called its author its owner."""
    return {**document, "author": document.pop("owner")}


def record_of_then(document: Document) -> Document:
    """An invented step: the end of a run was told as `over`, with `code`."""
    if document["is"] == "over":
        return {**document, "is": "run-end", "outcome": document.pop("code")}
    return document


def old_plan(w: World, schema: int = model.VERSION - 1) -> bytes:
    document = json.loads(plan_file.write(w.plan()))
    document["nodevet_plan"] = schema
    document["owner"] = document.pop("author")
    return json.dumps(document).encode()


def test_a_plan_of_the_previous_schema_is_upgraded_when_it_is_read(
    world: Callable[..., World],
) -> None:
    w = world()
    plan = plan_file.read(old_plan(w), {model.VERSION - 1: plan_of_then})
    assert (plan.nodevet_plan, plan.author) == (model.VERSION, "ann")
    assert plan.steps == w.plan().steps


@pytest.mark.parametrize(
    ("schema", "told"),
    [(model.VERSION - 2, "cannot convert it"), (model.VERSION + 1, "use the nodevet that wrote")],
)
def test_a_plan_without_an_upgrade_from_its_schema_is_refused(
    world: Callable[..., World], schema: int, told: str
) -> None:
    with pytest.raises(model.PlanError, match=told):
        plan_file.read(old_plan(world(), schema), {model.VERSION - 1: plan_of_then})


def test_a_plan_that_its_upgrade_cannot_read_is_refused(world: Callable[..., World]) -> None:
    document = json.loads(old_plan(world()))
    del document["owner"]
    with pytest.raises(model.PlanError, match="not a valid document of schema"):
        plan_file.read(json.dumps(document).encode(), {model.VERSION - 1: plan_of_then})


def older(lines: list[bytes], schema: int) -> bytes:
    """The lines of a journal as that schema had them, chained again."""
    told, last = [], ""
    for line in lines:
        document = json.loads(line)
        if "schema" in document:
            document["schema"] = schema
        if document["is"] == "run-end":
            document |= {"is": "over", "code": document.pop("outcome")}
        document["prev"] = last or document["prev"]
        told.append(json.dumps(document, separators=(",", ":")).encode())
        last = journal._sha256(told[-1])
    return b"".join(line + b"\n" for line in told)


def test_a_journal_of_the_earlier_schema_continues_in_the_current_one(
    world: Callable[..., World],
) -> None:
    w = world()
    log = w.journal()
    log.write(RunEnd(outcome="0"))
    log.close()
    steps = {records.SCHEMA - 1: record_of_then}
    then = older(log.path.read_bytes().splitlines(), records.SCHEMA - 1)
    found, _ = journal.parse(then, upgrades=steps)
    assert [type(each).__name__ for each in found] == ["RunBegin", "RunEnd"]
    assert found[1].outcome == "0"  # type: ignore[union-attr]
    begun = json.loads(log.path.read_bytes().splitlines()[0])
    begun["prev"] = journal._sha256(then.splitlines()[-1])
    now = json.dumps(begun).encode() + b"\n"
    found, _ = journal.parse(then + now, upgrades=steps)
    assert [type(each).__name__ for each in found] == ["RunBegin", "RunEnd", "RunBegin"]


def test_a_journal_without_an_upgrade_from_its_schema_is_refused(
    world: Callable[..., World],
) -> None:
    w = world()
    log = w.journal()
    with pytest.raises(JournalError, match=r"journal\.jsonl:1: a journal of schema"):
        journal.parse(older(log.path.read_bytes().splitlines(), records.SCHEMA - 1))


def test_a_result_of_an_earlier_schema_keeps_its_run_unknown(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = rig("n1")
    d.apply()
    result = Path(d.run / "result.json")
    document = json.loads(result.read_text())
    document |= {"schema": document["schema"] - 1, "doubt": "the disk was full"}
    document.pop("unknown")
    result.write_text(json.dumps(document))
    step = {document["schema"]: lambda then: {**then, "unknown": then.pop("doubt")}}
    d.cut(d.lines - 1, killed=False)
    assert "is missing" in d.told()["unknown"]
    monkeypatch.setattr("nodevet.fix.journal.folder.RESULTS", step)
    assert "is missing" not in d.told()["unknown"]


def test_upgrades_run_one_schema_at_a_time() -> None:
    steps = {1: lambda one: {**one, "b": one["a"]}, 2: lambda two: {**two, "c": two["b"]}}
    assert upgraded({"a": 1}, 1, 3, steps) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(UpgradeError):
        upgraded({"a": 1}, 0, 3, steps)
