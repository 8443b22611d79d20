"""What a health check may take a node out for: a failure at once, an unknown after some looks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.base.errors import UserError
from nodevet.model import Finding, Host, HostFacts, HostReport, Status, Verdict
from nodevet.model.run import Run
from nodevet.vet.use.gate import verdict_of
from nodevet.vet.use.looks import AGAIN, Looks

HERE = (Host(name="n1", local=True),)
OK = Finding(verdict=Verdict.OK)
UNKNOWN = Finding(verdict=Verdict.UNKNOWN, why="EIO")
PASSING = Finding(verdict=Verdict.UNKNOWN, why="dpkg", transient=True)
FAIL = Finding(verdict=Verdict.FAIL)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "nodevet" / "looks"


def run(*findings: Finding, uptime: int | None = 9000, status: Status = Status.VETTED) -> Run:
    facts = HostFacts(uptime_s=uptime) if status is Status.VETTED else None
    host = HostReport(host="n1", status=status, findings=(OK, *findings), facts=facts)
    return Run(id="r", nodevet="0", started="", seconds=0.0, hosts=(host,))


def codes(*runs: Run, most: int = 3, words: tuple[str, ...] = ("check",)) -> list[int]:
    return [Looks(words, HERE, most).code(one, one.exit_code)[0] for one in runs]


def test_e14_a_failure_counts_at_once() -> None:
    assert codes(run(FAIL), run(FAIL, UNKNOWN), run(FAIL, PASSING)) == [1, 1, 1]


def test_e14_unknown_checks_count_after_some_looks_in_a_row() -> None:
    assert codes(*[run(UNKNOWN)] * 4) == [AGAIN, AGAIN, 3, 3]


@pytest.mark.parametrize("between", [(), (FAIL,)])
def test_e14_another_verdict_resets_the_count_of_unknown_looks(
    between: tuple[Finding, ...],
) -> None:
    first = codes(run(UNKNOWN), run(UNKNOWN), run(*between), run(UNKNOWN), run(UNKNOWN))
    assert first == [AGAIN, AGAIN, 1 if between else 0, AGAIN, AGAIN]
    assert codes(run(UNKNOWN)) == [3]


def test_e14_a_transient_state_never_counts_and_hides_nothing_else() -> None:
    assert codes(*[run(PASSING)] * 9) == [AGAIN] * 9
    assert codes(*[run(PASSING, UNKNOWN)] * 3) == [AGAIN, AGAIN, 3]


def test_e14_a_machine_that_has_just_booted_is_looked_at_again() -> None:
    assert codes(*[run(FAIL, uptime=40)] * 9) == [AGAIN] * 9
    assert codes(run(uptime=40)) == [0]
    assert codes(run(FAIL, uptime=301)) == [1]


def test_e14_a_probe_that_failed_counts_as_unknown() -> None:
    assert codes(*[run(status=Status.PROBE_FAILED)] * 3) == [AGAIN, AGAIN, 3]


def test_unknown_looks_are_counted_per_command_line() -> None:
    assert codes(run(UNKNOWN), most=2, words=("a",)) == [AGAIN]
    assert codes(run(UNKNOWN), most=2, words=("b",)) == [AGAIN]
    assert codes(run(UNKNOWN), most=2, words=("a",)) == [3]


def test_a_reboot_resets_the_count_of_unknown_looks(state: Path) -> None:
    assert codes(run(UNKNOWN), run(UNKNOWN)) == [AGAIN, AGAIN]
    (record,) = state.iterdir()
    record.write_text("another-boot 2")
    assert codes(run(UNKNOWN)) == [AGAIN]


def test_e14_a_count_in_a_folder_that_others_can_write_is_refused(state: Path) -> None:
    codes(run(UNKNOWN))
    state.chmod(0o777)
    with pytest.raises(UserError, match="can be written by everyone"):
        codes(run(UNKNOWN))


@pytest.mark.parametrize("planted", [b"\xff\xfe 2", b"", b"0 x"])
def test_e14_a_damaged_record_resets_the_count_of_unknown_looks(
    state: Path, planted: bytes
) -> None:
    codes(run(UNKNOWN))
    (record,) = state.iterdir()
    record.write_bytes(planted)
    assert codes(run(UNKNOWN), run(UNKNOWN), run(UNKNOWN)) == [AGAIN, AGAIN, 3]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_e14_an_unknown_that_cannot_be_counted_drains_no_node(
    state: Path, make: Callable[[Path], None]
) -> None:
    """A full disk made the exit code 2, which the health check of docs/gate.md drains for."""
    codes(run(UNKNOWN))
    (record,) = state.iterdir()
    record.unlink()
    make(record)
    code, why = Looks(("check",), HERE, 3).code(run(UNKNOWN), 3)
    assert code == AGAIN
    assert "cannot be counted" in why


@pytest.mark.parametrize("findings", [(), (FAIL,)])
def test_a_record_that_cannot_be_removed_hides_no_verdict(
    state: Path, findings: tuple[Finding, ...]
) -> None:
    codes(run(UNKNOWN))
    (record,) = state.iterdir()
    record.unlink()
    record.mkdir()
    assert codes(run(*findings)) == [len(findings)]


def test_a_failure_counts_where_nothing_can_be_stored(state: Path) -> None:
    state.parents[1].touch()
    assert codes(run(FAIL), run(UNKNOWN)) == [1, AGAIN]


def test_looks_can_only_be_counted_for_this_machine() -> None:
    for hosts in ((), (Host(name="n1"),), HERE * 2, (Host(name="t", local=True, root="/srv"),)):
        with pytest.raises(UserError, match="@local as the only host"):
            Looks((), hosts, 3)


def test_e14_the_gate_verdict_is_pending_while_only_transient_checks_are_unknown() -> None:
    assert verdict_of(run(PASSING)).verdict == "pending"
    assert verdict_of(run(PASSING)).exit_code == AGAIN
    for other in (run(PASSING, UNKNOWN), run(FAIL, PASSING), run(status=Status.TIMEOUT)):
        assert (verdict_of(other).verdict, verdict_of(other).exit_code) == ("fail", 1)
    assert verdict_of(run()).verdict == "pass"
