"""A rollback of two steps that is killed after any of its records, and then repeated."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix.journal.account import account
from nodevet.fix.journal.journal import Journal, read
from nodevet.fix.journal.records import JournalRecord
from nodevet.fixing.result import Outcome

World = Any
APPLIED, REVERTED = 23, 9  # records of an undisturbed apply and rollback, their begins among them


@pytest.fixture
def die(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> Callable[[World, Callable[[], Any], int], None]:
    """Do something, and be killed once so many records are on the disk."""
    write = Journal.write

    def until(w: World, do: Callable[[], Any], records: int) -> None:
        numbers = count(1)

        def one(journal: Journal, record: JournalRecord) -> None:
            write(journal, record)
            if next(numbers) >= records:
                raise world.killed

        with monkeypatch.context() as patch, suppress(world.killed):
            patch.setattr(Journal, "write", one)
            do()
        for box in w.boxes.values():
            box.session, box.holder = False, ""

    return until


def two_steps(world: Callable[..., World]) -> tuple[World, Any, Any]:
    w = world(pages={"mode": "never", "risk": "drain"}, ecc_mode=True)
    w.terms = replace(w.terms, drain_hook="true")
    return w, w.plan(), w.boxes["n1"].everything()


def test_e29_apply_and_rollback_write_the_expected_number_of_records(
    world: Callable[..., World],
) -> None:
    w, plan, _ = two_steps(world)
    w.node(plan, w.journal())
    assert len(plan.steps) == 2 and len(read(w.folder / "run")) == APPLIED
    w.back(plan)
    assert len(read(w.folder / "run")) == APPLIED + REVERTED


@pytest.mark.parametrize("first", range(2, REVERTED + 1))
@pytest.mark.parametrize("second", range(2, REVERTED + 1))
def test_e29_a_rollback_killed_twice_and_repeated_reverts_every_step(
    world: Callable[..., World], die: Callable[..., None], first: int, second: int
) -> None:
    w, plan, before = two_steps(world)
    w.node(plan, w.journal())
    assert w.boxes["n1"].everything() != before
    for records in (first, second):
        die(w, lambda: w.back(plan), records)
    whole(w, plan, before)


@pytest.mark.parametrize("first", range(2, APPLIED + 1))
@pytest.mark.parametrize("second", [3, 5])
def test_e29_a_repeated_rollback_reverts_all_after_apply_and_rollback_were_killed(
    world: Callable[..., World], die: Callable[..., None], first: int, second: int
) -> None:
    w, plan, before = two_steps(world)
    die(w, lambda: w.node(plan, w.journal()), first)
    die(w, lambda: w.back(plan), second)
    whole(w, plan, before)


def whole(w: World, plan: Any, before: Any) -> None:
    """A last rollback says that all is as before, and so it is."""
    result = w.back(plan)
    assert result.outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED), result
    assert w.boxes["n1"].everything() == before, result
    (host,) = account(plan, read(w.folder / "run"), kind="rollback").hosts
    assert host.outcome in (Outcome.ROLLED_BACK, Outcome.UNCHANGED), host
    assert w.back(plan).outcome is Outcome.UNCHANGED
