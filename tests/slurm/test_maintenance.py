"""Nodes in a maintenance reservation of a real Slurm."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm

from nodevet.slurm.reservations import maintenances_of
from tests.slurm.conftest import FAIL, Nodevet, drain, reason, shown
from tests.slurm.test_health import OURS
from tests.slurm.test_hook import PLAN, TAKEN

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def reserve(slurm: Slurm) -> Iterator[Callable[..., None]]:
    """Reserves the node."""
    names: list[str] = []

    def reserve(name: str, flags: str = "MAINT,IGNORE_JOBS", start: str = "now") -> None:
        words = (f"ReservationName={name}", f"StartTime={start}", "Duration=60", "Users=root")
        slurm.says("scontrol", "create", "reservation", *words, f"Flags={flags}", "Nodes=ALL")
        names.append(name)
        if start == "now":
            wait_for(lambda: "RESERVED" in shown(slurm))

    yield reserve
    for name in names:
        slurm.says("scontrol", "delete", f"ReservationName={name}")
    wait_for(lambda: "RESERVED" not in shown(slurm))


@pytest.mark.other_slurm
def test_health_waits_for_the_end_of_a_maintenance(
    slurm: Slurm, nodevet: Nodevet, reserve: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(FAIL)
    reserve("fw")
    done = nodevet("slurm", "health", "-b", "site.yaml")
    assert (done.returncode, reason(slurm)) == (1, ""), done
    assert "it is in maintenance; the next health check after that drains it" in done.stderr
    slurm.says("scontrol", "delete", "ReservationName=fw")
    wait_for(lambda: "MAINT" not in shown(slurm))
    nodevet("slurm", "health", "-b", "site.yaml")
    assert OURS.fullmatch(reason(slurm))


def test_a_reservation_without_maintenance_changes_nothing(
    slurm: Slurm, nodevet: Nodevet, reserve: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(FAIL)
    reserve("class", "IGNORE_JOBS")
    nodevet("slurm", "health", "-b", "site.yaml")
    assert OURS.fullmatch(reason(slurm))


@pytest.mark.other_slurm
def test_the_hook_takes_a_node_in_maintenance_only_by_the_name_of_the_reservation(
    slurm: Slurm, nodevet: Nodevet, reserve: Callable[..., None]
) -> None:
    def call(what: str, *words: str) -> tuple[int, str]:
        done = nodevet("slurm", "hook", slurm.node, *words, NODEVET_HOOK=what, **PLAN)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    by_name = ("--reservation", "fw")
    code, told = call("drain", *by_name)
    assert (code, "is not in the maintenance reservation fw" in told) == (2, True), told
    reserve("fw")
    reserve("later", start="now+2hours")
    code, told = call("drain")
    assert code == 2, told
    assert "the maintenance reservation fw; if this reservation is yours, name it" in told
    assert reason(slurm) == ""
    assert call("drain", *by_name)[0] == 0
    assert reason(slurm) == TAKEN
    assert call("undrain", *by_name)[0] == 0
    wait_for(lambda: "State=IDLE+MAINTENANCE+RESERVED " in shown(slurm))
    reserve("second")  # someone else needs the node at the same time
    code, told = call("drain", *by_name)
    assert (code, "is in the maintenance reservation second" in told) == (2, True), told


def test_a_node_that_an_admin_drained_in_maintenance_keeps_its_reason(
    slurm: Slurm, nodevet: Nodevet, reserve: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(FAIL)
    reserve("fw")
    drain(slurm, "bad PSU")
    assert "IDLE+DRAIN+MAINTENANCE+RESERVED" in shown(slurm)
    assert "its reason is not nodevet's" in nodevet("slurm", "health", "-b", "site.yaml").stderr
    assert reason(slurm) == "bad PSU"


def test_only_an_active_maintenance_of_this_node_counts() -> None:
    row = (
        "ReservationName={} Nodes={} NodeCnt=2 Flags={},SPEC_NODES TRES=cpu=2 State={} Watts=n/a\n"
    )
    rows = [
        ("now", "gpu[001-010],cpu1", "MAINT,IGNORE_JOBS", "ACTIVE"),
        ("later", "gpu[001-010]", "MAINT", "INACTIVE"),
        ("class", "gpu[001-010]", "DAILY", "ACTIVE"),
        ("licenses", "(null)", "MAINT", "ACTIVE"),
    ]
    text = "".join(row.format(*words) for words in rows)
    assert maintenances_of("gpu007", text) == ["now"]
    assert maintenances_of("gpu011", text) == []
    assert maintenances_of("gpu007", "No reservations in the system\n") == []
