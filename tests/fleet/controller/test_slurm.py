"""Hosts that a job of a real Slurm visits: `srun` as a launcher."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm, running_slurm

from nodevet.fleet import Options, Visit, visit
from nodevet.fleet.launchers import Launcher, Launchers, launcher
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("small_orders")]
SHARD = Path(sys.executable).with_name("nodevet-shard")
Go = Callable[..., dict[str, Visit]]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running_slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


@pytest.fixture
def made(
    slurm: Slurm, node: Sshd, key: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Launcher]:
    """Makes a launcher whose job finds its keys where Slurm's node has them."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    known = tmp_path / "known"
    known.write_text(node.known_hosts)
    paths = {"known_hosts": str(known), "key_file": str(key.path), "ssh_config": os.devnull}
    return lambda name, words: launcher(name, f"{words} {SHARD}", **paths)


def test_hosts_are_visited_by_a_job(
    slurm: Slurm, made: Callable[[str, str], Launcher], hosts: Callable[..., list[Host]], go: Go
) -> None:
    visits = go(hosts("healthy"), engine=Launchers((made("slurm", "srun -N1"),)))
    assert {(one.status, one.why) for one in visits.values()} == {(Status.VETTED, "")}
    wait_for(lambda: not slurm.jobs)


def test_a_job_that_is_cancelled_gives_its_hosts_to_another_launcher(
    slurm: Slurm, made: Callable[[str, str], Launcher], hosts: Callable[..., list[Host]]
) -> None:
    cancelled, other = made("cancelled", "srun -N1"), made("other", "srun -N1")
    wanted = hosts("late")
    seen: list[Visit] = []
    engine = Launchers((cancelled, other))
    for one in visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine)):
        if not seen:
            wait_for(lambda: len(slurm.jobs) == 2)
            slurm.says("scancel", min(slurm.jobs, key=int))
        seen.append(one)
    assert Counter(one.host for one in seen) == {host.name: 1 for host in wanted}
    assert {(one.status, one.why) for one in seen} == {(Status.VETTED, "")}


def test_a_cancelled_job_without_another_launcher_reports_why_for_each_host(
    slurm: Slurm, made: Callable[[str, str], Launcher], hosts: Callable[..., list[Host]]
) -> None:
    engine = Launchers((made("only", "srun -N1"), made("strange", "srun -N1 -p no-such-partition")))
    wanted = [*hosts("healthy", 1, "dc0"), *hosts("hangs", 4)]
    seen: list[Visit] = []
    for one in visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine)):
        if not seen:
            slurm.says("scancel", *slurm.jobs)
        seen.append(one)
    assert Counter(one.host for one in seen) == {host.name: 1 for host in wanted}
    # Slurm may end the job's processes one by one: a host whose own process ended first was visited
    assert {one.status for one in seen[1:]} <= {Status.NOT_VISITED, Status.PROBE_FAILED}, seen
    for one in seen[1:]:
        assert "launcher only " in one.why and "launcher strange " in one.why


def test_closing_the_iterator_ends_the_job(
    slurm: Slurm,
    made: Callable[[str, str], Launcher],
    hosts: Callable[..., list[Host]],
) -> None:
    wanted = [*hosts("healthy", 1, "dc0"), *hosts("hangs", 4)]
    engine = Launchers((made("slurm", "srun -N1"),))
    visits = visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine))
    assert next(visits).host == "dc0-00"
    assert slurm.jobs
    visits.close()
    wait_for(lambda: not slurm.jobs)


def test_check_visits_a_host_through_srun(
    slurm: Slurm, node: Sshd, key: KeyPair, tmp_path: Path
) -> None:
    """A real probe, by a job whose home has the keys."""
    home = tmp_path / "home" / ".ssh"
    home.mkdir(parents=True)
    shutil.copy(key.path, home / "id_ed25519")
    (home / "known_hosts").write_text(node.known_hosts)
    place = {"address": node.address, "port": node.port}
    inventory = {"nodevet": 1, "defaults": {"user": "root"}, "hosts": {socket.gethostname(): place}}
    (tmp_path / "fleet.yaml").write_text(json.dumps(inventory))
    (tmp_path / "any.yaml").write_text("nodevet: 1\ntitle: any\nexpect: {clock_skew: 3600}\n")
    form = ("--format", "json")
    (tmp_path / "nodevet.toml").write_text(f'launchers.slurm = "srun -N1 {SHARD}"\n')
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", "check", "-i", "fleet.yaml", "-b", "any.yaml", *form],
        cwd=tmp_path,
        env={**os.environ, "SLURM_CONF": str(slurm.conf), "HOME": str(home.parent)},
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert [host["status"] for host in found["hosts"]] == ["vetted"]
    assert (done.returncode, done.stderr) == (0, "")
