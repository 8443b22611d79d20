"""Random JSON in every position of a run's files: a plan, its journal, how nodes were reached."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_json import mangled
from shown_plan import shown_plan

from nodevet.fix.journal import journal
from nodevet.fix.journal.account import account
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.tries import tries
from nodevet.fix.model import PlanError
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.render import View
from nodevet.fixing.result import Outcome

CommandRig = Any
DEEP = '{"x": ' + "[" * 60_000 + "]" * 60_000 + "}"
OFTEN = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def ended(rig: Callable[..., CommandRig]) -> Path:
    """The folder of a run that ended well."""
    d = rig("n1", "n2")
    assert d.apply().code == 0
    folder: Path = d.run
    return folder


def chained(rows: list[dict[str, Any]]) -> bytes:
    """A journal, by someone who knows how its lines hang together."""
    lines: list[bytes] = []
    for row in rows:
        if lines:
            row["prev"] = hashlib.sha256(lines[-1]).hexdigest()
        lines.append(json.dumps(row, separators=(",", ":")).encode())
    return b"".join(line + b"\n" for line in lines)


def test_e04_a_mangled_plan_is_shown_or_refused(ended: Path) -> None:
    plan = json.loads((ended / "plan.json").read_text())

    @OFTEN
    @given(mangled(plan))
    def holds(document: Any) -> None:
        try:
            read = plan_file.read(json.dumps(document).encode())
        except PlanError:
            return
        assert all(shown_plan(read, view) for view in View)

    holds()


def test_e04_a_mangled_journal_is_reported_or_refused(ended: Path) -> None:
    _, plan = RunFolder(ended).plan()
    rows = [json.loads(line) for line in (ended / "journal.jsonl").read_text().splitlines()]
    whole = account(plan, journal.read(ended))

    @OFTEN
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(rows) - 1))
        row = data.draw(mangled(rows[at]))
        (ended / "journal.jsonl").write_bytes(chained([*rows[:at], row, *rows[at + 1 :]]))
        try:
            told = account(plan, journal.read(ended))
        except journal.JournalError:
            return
        planned, strangers = told.hosts[: len(whole.hosts)], told.hosts[len(whole.hosts) :]
        assert [host.host for host in planned] == [host.host for host in whole.hosts]
        assert {host.outcome for host in strangers} <= {Outcome.UNKNOWN}
        assert all(one.run.hosts for one in tries(plan, journal.read(ended), "runs/1"))

    holds()


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_e04_a_journal_with_a_time_outside_the_calendar_is_recorded(ended: Path, at: str) -> None:
    """Of the first year, or the last, in another zone than UTC."""
    _, plan = RunFolder(ended).plan()
    records = journal.read(ended)
    begin, end = (msgspec.structs.replace(record, at=at) for record in (records[0], records[-1]))
    (found,) = tries(plan, [begin, *records[1:-1], end], "runs/1")
    assert found.run.id.startswith(at[:4])


def test_e04_a_mangled_reach_file_is_read_or_refused(ended: Path) -> None:
    path = ended / "reach.json"
    reach = json.loads(path.read_text())

    @OFTEN
    @given(mangled(reach).map(json.dumps) | st.just(DEEP))
    def holds(text: str) -> None:
        path.write_text(text)
        with suppress(RunError):
            RunFolder(ended).reach()

    holds()
