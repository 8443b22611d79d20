"""`nodevet slurm health` beside a real slurmctld and slurmd."""

import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm

from tests.slurm.conftest import FAIL, PASS, Nodevet, drain, reason, shown

pytestmark = pytest.mark.timeout(300)
UNKNOWN = "nodevet: 1\nexpect: {disk_space: 1%, persistence_mode: true}\n"
OURS = re.compile(r"nodevet:local disk_space .+, expected .*")

HOSTILE = '''"""Says what a node may say."""

from nodevet.model import Check, CheckParams, fail

TEXT = "x\\" State=RESUME Reason=a [x@2026-11-24T17:01:24]; $(touch y) `z`\\n\\x1b[2J \u202e \u00e9"


class Params(CheckParams):
    """`hostile: {}`"""


CHECK = Check(
    params=Params, reads=(), judge=lambda evidence, params: iter([fail(expected="x", actual=TEXT)])
)
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(FAIL)
    return path


@pytest.mark.other_slurm
def test_a_failure_drains_at_once_and_its_reason_says_what_differs(
    slurm: Slurm, nodevet: Nodevet, site: Path
) -> None:
    done = nodevet("slurm", "health", "-b", site)
    assert done.returncode == 1, done.stderr
    assert "IDLE+DRAIN" in shown(slurm)
    assert OURS.fullmatch(reason(slurm))
    again = nodevet("slurm", "health", "-b", site)
    assert "it is already drained for this" in again.stderr


@pytest.mark.parametrize("hook", ["health", "prolog"])
def test_a_node_that_can_store_nothing_fails_all_the_same(
    slurm: Slurm, nodevet: Nodevet, site: Path, tmp_path: Path, hook: str
) -> None:
    """Its disk may be full or read-only, and may be what fails."""
    (tmp_path / "file").touch()
    done = nodevet("slurm", hook, "-b", site, XDG_STATE_HOME=str(tmp_path / "file/state"))
    assert done.returncode == 1, done
    if hook == "health":
        assert OURS.fullmatch(reason(slurm))
    else:
        assert "does not start here" in done.stderr
        assert "not noted for the next health check" in done.stderr


def test_an_unknown_check_drains_after_several_looks_in_a_row(
    slurm: Slurm, nodevet: Nodevet, site: Path
) -> None:
    site.write_text(UNKNOWN)
    codes = [nodevet("slurm", "health", "-b", site, "--looks", "2").returncode for _ in "12"]
    assert codes == [75, 3]
    assert reason(slurm).startswith("nodevet:local persistence_mode unknown: ")


@pytest.mark.other_slurm
@pytest.mark.parametrize("foreign", ["bad PSU", "slurm-operator: cordoned", "nodevet: ask Ann"])
def test_the_reason_of_someone_else_stays(
    slurm: Slurm, nodevet: Nodevet, site: Path, foreign: str
) -> None:
    drain(slurm, foreign)
    before = shown(slurm).partition("Reason=")[2]
    done = nodevet("slurm", "health", "-b", site)
    assert (done.returncode, "its reason is not nodevet's" in done.stderr) == (1, True)
    assert shown(slurm).partition("Reason=")[2] == before


@pytest.mark.other_slurm
def test_a_reason_that_outlives_its_drain_keeps_no_failing_node_in_service(
    slurm: Slurm, nodevet: Nodevet, site: Path
) -> None:
    """Slurm 24.11 keeps the reason of a node that is resumed."""
    drain(slurm, "bad PSU")
    slurm.says("scontrol", "update", f"NodeName={slurm.node}", "State=RESUME")
    wait_for(lambda: "State=IDLE " in shown(slurm))
    assert nodevet("slurm", "health", "-b", site).returncode == 1
    assert OURS.fullmatch(reason(slurm))


@pytest.mark.other_slurm
def test_a_prolog_error_of_slurm_is_replaced(slurm: Slurm, nodevet: Nodevet, site: Path) -> None:
    drain(slurm, "Prolog error")
    nodevet("slurm", "health", "-b", site)
    assert OURS.fullmatch(reason(slurm))


@pytest.mark.other_slurm
def test_nothing_is_drained_while_jobs_run(slurm: Slurm, nodevet: Nodevet, site: Path) -> None:
    slurm.says("sbatch", "-o", os.devnull, "--wrap", "sleep 300")
    wait_for(lambda: slurm.jobs)
    done = nodevet("slurm", "health", "-b", site)
    assert (done.returncode, reason(slurm)) == (1, ""), done.stderr
    assert "jobs run on it" in done.stderr
    inside = nodevet("slurm", "health", "-b", site, SLURM_JOB_ID="7")
    assert "inside job 7, nodevet drains no node" in inside.stderr
    slurm.says("scancel", "--user", "root")
    wait_for(lambda: "CPUAlloc=0" in shown(slurm) and "COMPLETING" not in shown(slurm))
    nodevet("slurm", "health", "-b", site)
    assert OURS.fullmatch(reason(slurm))


def test_concurrent_health_checks_drain_a_node_once(
    slurm: Slurm, nodevet: Nodevet, site: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: nodevet("slurm", "health", "-b", site), range(4)))
    assert [one.returncode for one in done] == [1] * 4, done
    assert OURS.fullmatch(reason(slurm))


@pytest.mark.parametrize("words", [("--loks", "3"), ("-b", "missing.yaml"), ("-b", "broken.yaml")])
def test_a_usage_or_baseline_error_does_not_drain_the_node(
    slurm: Slurm, nodevet: Nodevet, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "broken.yaml").write_text("nodevet: [")
    done = nodevet("slurm", "health", *words)
    assert (done.returncode, reason(slurm)) == (2, ""), done.stderr


@pytest.mark.other_slurm
def test_hostile_text_is_harmless(
    slurm: Slurm, nodevet: Nodevet, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/hostile.py").write_text(HOSTILE)
    site.write_text("nodevet: 1\nexpect: {hostile: {}}\n")
    done = nodevet("slurm", "health", "-b", site)
    assert done.returncode == 1, done.stderr
    (row,) = shown(slurm).splitlines()
    assert "State=IDLE+DRAIN" in row
    assert reason(slurm).startswith("nodevet:local hostile ")
    assert not set(reason(slurm)) & set('"`$[]|\\')
    assert "State=RESUME" not in row


def test_a_recent_pass_is_reused_without_another_check(
    slurm: Slurm, nodevet: Nodevet, site: Path
) -> None:
    site.write_text(PASS)
    time.sleep(2.2)  # what has just changed is not relied on
    words = ("-b", site, "--max-age", "5m")
    first = nodevet("slurm", "health", *words)
    assert (first.returncode, "verdict of" in first.stdout) == (0, False), first.stderr
    for hook in ("health", "prolog"):
        again = nodevet("slurm", hook, *words)
        assert (again.returncode, "verdict of" in again.stdout) == (0, True), again
    assert reason(slurm) == ""


def test_health_gives_up_on_a_dead_controller_and_the_next_check_drains(
    slurm: Slurm, nodevet: Nodevet, site: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls, and never answers
        port = f"SlurmctldPort={silent.getsockname()[1]}"
        conf = tmp_path / "slurm.conf"
        conf.write_text(re.sub("SlurmctldPort=.*", port, slurm.conf.read_text()))
        done = nodevet("slurm", "health", "-b", site, SLURM_CONF=str(conf))
    assert done.returncode == 1
    assert ": scontrol did not end within 8 s; the next health check tries again" in done.stderr
    assert reason(slurm) == ""
    nodevet("slurm", "health", "-b", site)
    assert OURS.fullmatch(reason(slurm))
