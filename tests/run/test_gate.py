"""The gate waits until hosts pass, trusts none that has just booted, and fails what is unknown."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import force_setattr

from nodevet.base.outputs import FileError
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.fleet import Options, Visit
from nodevet.model import Host, Severity, Status
from nodevet.model.run import Run
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.gate import Attempts, begin, gate, verdict_of

Vetted = Callable[..., Visit]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, context: VetContext) -> Callable[..., Run]:
    """A gate over hosts that answer so, one attempt after the other; the last answer stays."""

    def run(*attempts: Sequence[Visit], wait: float = 60, settle: float = 0) -> Run:
        asked: list[list[str]] = []

        def visit(hosts: Sequence[Host], options: Options) -> Iterator[Visit]:
            now = attempts[min(len(asked), len(attempts) - 1)]
            asked.append([host.name for host in hosts])
            return iter([one for one in now if one.host in asked[-1]])

        clock = iter(range(10_000))
        monkeypatch.setattr("nodevet.vet.use.beside.visit", visit)
        monkeypatch.setattr("nodevet.vet.use.gate.time.monotonic", lambda: float(next(clock)))
        monkeypatch.setattr("nodevet.vet.use.gate.time.sleep", lambda seconds: None)
        hosts = [Host(name=one.host, expect_hostname=False) for one in attempts[0]]
        limits = Attempts(wait=wait, settle=settle, interval=10, fail_on=Severity.WARNING)
        found = gate(hosts, context, Options(), limits)
        run.asked = asked  # type: ignore[attr-defined]
        return found

    return run


def ok(run: Run) -> bool:
    return verdict_of(run).verdict == "pass"


def test_a_host_is_tried_again_until_it_passes_and_those_that_passed_are_not_touched(
    tried: Any, vetted: Vetted
) -> None:
    away = Visit("a", Status.UNREACHABLE, "no route")
    run = tried([away, vetted("b")], [away], [vetted("a")])
    assert tried.asked == [["a", "b"], ["a"], ["a"]]
    assert ok(run) and [host.host for host in run.hosts] == ["a", "b"]


def test_a_host_that_never_answers_fails_with_its_last_reason(tried: Any) -> None:
    run = tried([Visit("a", Status.UNREACHABLE, "no route")], wait=30)
    assert len(tried.asked) > 1
    assert (verdict_of(run).verdict, verdict_of(run).exit_code) == ("fail", 1)
    assert (run.hosts[0].status, run.hosts[0].why) == (Status.UNREACHABLE, "no route")


@pytest.mark.parametrize(
    ("uptime", "told"), [(29.0, "up for 29 s"), (None, "up for unknown"), (30.0, "")]
)
def test_a_host_that_has_just_booted_is_not_believed(
    tried: Any, vetted: Vetted, uptime: float | None, told: str
) -> None:
    run = tried([vetted("a", uptime_s=uptime)], wait=5, settle=30)
    assert ok(run) is not bool(told)
    assert run.hosts[0].why == (f"not settled: {told}, expected 30 s" if told else "")


def test_an_unknown_check_fails_the_gate(tried: Any, vetted: Vetted) -> None:
    assert not ok(tried([vetted("a", hostname=None)], wait=5))
    assert ok(tried([vetted("a")], wait=5))


BROKEN = """
from nodevet.model import Check, CheckParams, fail

def judge(evidence, params):
    yield fail(expected=1, actual=2)

CHECK = Check(params=CheckParams, reads=(), judge=judge)
"""
WAIVED = """
nodevet: 1
expect: {broken: {}}
waivers: [{check: broken, accepts: 2, owner: a, reason: b, until: 2026-11-20}]
"""


def test_a_waiver_that_ends_while_the_gate_waits_lets_no_host_pass(
    tried: Any,
    vetted: Vetted,
    context: VetContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "checks/broken.py").write_text(BROKEN)
    (tmp_path / "b.yaml").write_text(WAIVED)
    catalog = Catalog([tmp_path / "checks"])
    (found,) = load([str(tmp_path / "b.yaml")], folders=[], catalog=catalog)
    for name, value in {"catalog": catalog, "baselines": (found,), "chosen": found}.items():
        force_setattr(context, name, value)
    days = [date(2026, 11, 20), date(2026, 11, 21)]
    clock = SimpleNamespace(today=lambda: days.pop(0) if len(days) > 1 else days[0])
    monkeypatch.setattr("nodevet.vet.use.gate.date", clock)
    assert ok(tried([vetted("a")], wait=5))
    days.insert(0, date(2026, 11, 20))
    assert not ok(tried([Visit("a", Status.UNREACHABLE, "no route")], [vetted("a")]))


def test_the_verdict_file_says_pending_before_any_host_is_visited(tmp_path: Path) -> None:
    begin(tmp_path / "verdict")
    assert json.loads((tmp_path / "verdict").read_text())["verdict"] == "pending"


def test_an_old_pass_does_not_stay_if_the_verdict_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "verdict").write_text('{"verdict": "pass"}')

    def full(path: Path) -> None:
        raise FileError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("nodevet.vet.use.gate.try_out_regular", full)
    with pytest.raises(FileError, match="No space left"):
        begin(tmp_path / "verdict")
    assert not (tmp_path / "verdict").exists()


def test_a_verdict_file_on_a_full_disk_is_named() -> None:
    with pytest.raises(FileError, match="/dev/full: cannot be written: No space left on device"):
        begin(Path("/dev/full"))
