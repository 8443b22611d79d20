"""Applies, resumes and rollbacks of one run in any order: no later try hides an earlier one."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from nodevet.fix.journal import journal
from nodevet.fix.journal.account import account
from nodevet.fix.journal.folder import RunFolder
from nodevet.fixing.result import HostResult, Outcome
from nodevet.fleet.executor import WorkError

CommandRig = Any
HIDES = {Outcome.NOT_ATTEMPTED, Outcome.UNCHANGED}
BLOCKED = "/etc/tmpfiles.d/nodevet-pages.conf"


def as_apply(d: CommandRig) -> dict[str, HostResult]:
    _, plan = RunFolder(d.run).plan()
    found = account(plan, journal.read(d.run), kind="apply")
    return {host.host: host for host in found.hosts}


def test_e26_a_rolled_back_host_stays_so_in_reports_after_later_commands(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    assert d.apply().code == 0
    assert d.rollback("--host", "n1").code == 0
    first = as_apply(d)["n1"]
    assert first.outcome is Outcome.ROLLED_BACK and first.steps[0].before
    for again in (d.resume, d.rollback, d.resume):
        again()
        assert as_apply(d)["n1"].outcome is Outcome.ROLLED_BACK
        assert as_apply(d)["n1"].steps == first.steps
    assert d.outcomes() == {"n1": "rolled_back", "n2": "rolled_back"}


def test_e26_a_failed_host_stays_so_in_reports_after_a_rollback(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1", "n2")
    d.w.boxes["n1"].refused[BLOCKED] = "No space left on device"
    assert d.apply(max_fail=5).code == 1
    first = as_apply(d)["n1"]
    assert first.outcome is Outcome.FAILED
    d.rollback()
    d.resume()
    assert as_apply(d)["n1"].outcome is Outcome.FAILED
    assert as_apply(d)["n1"].steps == first.steps


def test_e26_a_refused_rollback_does_not_change_the_reported_steps(
    rig: Callable[..., CommandRig],
) -> None:
    d = rig("n1")
    assert d.apply().code == 0
    first = as_apply(d)["n1"]
    d.w.boxes["n1"].holder = "bob"
    assert d.rollback().code == 1
    d.resume()
    assert as_apply(d)["n1"].outcome is Outcome.REFUSED
    assert as_apply(d)["n1"].steps == first.steps


class Tries:
    """Random tries of one run on three hosts; `floor`: the first serious outcome of each."""

    def __init__(self, d: CommandRig, seed: int) -> None:
        self.d = d
        self.chance = random.Random(seed)
        self.floor: dict[str, HostResult] = {}

    def one(self) -> None:
        box = self.d.w.boxes[self.chance.choice([*self.d.w.boxes])]
        trouble = self.chance.choice(["", "", "locked", "gone", "full"])
        self._trouble(box, trouble)
        hosts = self.chance.choice([(), ("--host", "n1"), ("--host", "n[2-3]")])
        do = self.chance.choice([self.d.resume, lambda: self.d.rollback(*hosts)])
        said = do()
        assert said.code in (0, 1, 2, 3) and "internal error" not in said.err, said
        self._trouble(box, "")

    def _trouble(self, box: Any, kind: str) -> None:
        box.holder = "bob" if kind == "locked" else ""
        box.refused = {BLOCKED: "No space left on device"} if kind == "full" else {}

        def fault(at: Any, call: str, when: str) -> None:
            if kind == "gone" and at is box:
                raise WorkError("unreachable", "connection refused")

        self.d.w.executor.fault = fault

    def holds(self) -> None:
        now = as_apply(self.d)
        for host, then in self.floor.items():
            assert now[host].outcome.rank <= then.outcome.rank, (host, then, now[host])
            assert [step.outcome for step in now[host].steps if step.outcome in HIDES] == []
        for host, result in now.items():
            if result.outcome in (Outcome.ROLLED_BACK, Outcome.FAILED):
                self.floor.setdefault(host, result)


@pytest.mark.parametrize("seed", range(12))
def test_e26_no_later_command_hides_a_more_serious_outcome(
    rig: Callable[..., CommandRig], seed: int
) -> None:
    d = rig("n1", "n2", "n3")
    tries = Tries(d, seed)
    if seed % 2:
        d.w.boxes["n3"].refused[BLOCKED] = "No space left on device"
    d.apply(max_fail=5, batch=1)
    if seed % 3 == 0:
        d.cut(max(2, d.lines - tries.chance.randrange(12)))
    for _ in range(6):
        tries.holds()
        tries.one()
    tries.holds()
