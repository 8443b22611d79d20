"""A real Dask scheduler with real workers, of which one is killed: every host is told once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from far_processes import children_of, wait_for
from own_authority import Authority

from nodevet.fleet import FleetError, Options, Visit, visit
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.launchers import DaskPool, PoolLauncher
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("small_orders", "small_tasks")]
DASK = Path(sys.executable).with_name("dask")


class Pool:
    """A scheduler and its workers, on loopback. `tls`: what all of them are told of it."""

    def __init__(self, folder: Path, *tls: object) -> None:
        self.folder = folder
        self.tls = tls
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: object, **env: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [str(DASK), *map(str, argv), *map(str, self.tls)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **env},
            )
        self.processes.append(process)
        return process

    def scheduler(self) -> subprocess.Popen[bytes]:
        told = ("--host", "127.0.0.1", "--port", 0, "--no-dashboard")
        process = self.start("scheduler", *told, "--scheduler-file", self.file)
        wait_for(lambda: self.file.exists() and "://" in self.file.read_text())
        return process

    def worker(self, *argv: object, **env: str) -> subprocess.Popen[bytes]:
        told = ("--nthreads", 2, "--no-nanny", "--no-dashboard", "--memory-limit", 0)
        log = self.folder / f"{len(self.processes)}.log"
        process = self.start("worker", "--scheduler-file", self.file, *told, *argv, **env)
        wait_for(lambda: b"Registered to" in log.read_bytes())
        return process

    @property
    def address(self) -> str:
        import json

        found: str = json.loads(self.file.read_text())["address"]
        return found

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    found = Pool(tmp_path_factory.mktemp("pool"))
    try:
        found.scheduler()
        found.worker("--resources", "eu=2", "--name", "first")
        yield found
    finally:
        found.stop()


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PoolLauncher, "batch", 2)


@pytest.fixture
def engine(pool: Pool, node: Sshd, key: KeyPair, tmp_path: Path) -> DaskPool:
    known = tmp_path / "known"
    known.write_text(node.known_hosts)
    return DaskPool(
        pool.address,
        {"@dc1": ("eu",)},
        ssh_config=os.devnull,
        known_hosts=str(known),
        key_file=str(key.path),
    )


def test_workers_of_a_site_visit_its_hosts(
    engine: DaskPool, hosts: Callable[..., list[Host]], go: Callable[..., dict[str, Visit]]
) -> None:
    wanted = [*hosts("healthy", 5), *hosts("fails", 1, "dc2"), Host(name="here", local=True)]
    visits = go(wanted, engine=engine)
    found = {name: one.status for name, one in visits.items()}
    assert found.pop("dc2-00") is Status.PROBE_FAILED
    assert set(found.values()) == {Status.VETTED}
    assert visits["dc2-00"].why == "command on the node exited with 3: no such \\x1b[31mluck"


def test_a_worker_that_is_killed_loses_no_host(
    pool: Pool, engine: DaskPool, hosts: Callable[..., list[Host]]
) -> None:
    second = pool.worker("--resources", "eu=2", "--name", "second")
    seen = []
    with_both = Options(ssh_config=Path(os.devnull), engine=engine)
    for one in visit(hosts("late"), with_both):
        if not seen:
            os.kill(second.pid, signal.SIGKILL)
        seen.append(one)
    assert Counter(one.host for one in seen) == {host.name: 1 for host in hosts("late")}
    assert {(one.status, one.why) for one in seen} == {(Status.VETTED, "")}


class CountedHosts:
    """Hosts that write down each visit; `stuck` ones answer only to the second."""

    def __init__(self, folder: Path, fake: dict[str, str]) -> None:
        self._folder = folder
        self._fake = fake

    def counted(self, host: Host, *, stuck: bool = False) -> Host:
        script, visits = self._folder / host.name, self._folder / f"{host.name}.visits"
        first = f'[ "$(wc -l <{visits})" -gt 1 ] || exec {self._fake["hangs"]}\n' if stuck else ""
        script.write_text(
            f"#!/bin/sh\necho visited >>{visits}\n{first}exec {self._fake['healthy']}\n"
        )
        script.chmod(0o755)
        return msgspec.structs.replace(host, python=str(script))

    def visits(self, host: Host) -> int:
        return len((self._folder / f"{host.name}.visits").read_text().splitlines())


def test_hosts_answer_one_by_one_and_no_answered_host_is_visited_again(
    pool: Pool,
    engine: DaskPool,
    hosts: Callable[..., list[Host]],
    fake: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker is killed with some of the hosts of a task done: another one visits the rest."""
    monkeypatch.setattr(PoolLauncher, "batch", 100)
    counts = CountedHosts(tmp_path, fake)
    quick = [counts.counted(host) for host in hosts("healthy", 4)]
    stuck = [counts.counted(host, stuck=True) for host in hosts("healthy", 3, "dc2")]
    far = replace(engine, sites={"*": ("far",)})
    worker = pool.worker("--resources", "far=1")
    visits = visit([*quick, *stuck], Options(ssh_config=Path(os.devnull), engine=far))
    seen = [next(visits) for _ in quick]
    assert {one.host for one in seen} == {host.name for host in quick}  # the task goes on
    wait_for(lambda: all(counts.visits(host) == 1 for host in stuck))
    os.kill(worker.pid, signal.SIGKILL)
    taking_over = pool.worker("--resources", "far=1")
    seen += visits
    taking_over.terminate()
    taking_over.wait()
    assert {(one.status, one.why) for one in seen} == {(Status.VETTED, "")}
    assert Counter(one.host for one in seen) == {host.name: 1 for host in [*quick, *stuck]}
    assert {counts.visits(host) for host in quick} == {1}
    assert {counts.visits(host) for host in stuck} == {2}


def test_a_pool_with_tls_accepts_only_clients_with_a_certificate(
    engine: DaskPool,
    hosts: Callable[..., list[Host]],
    go: Callable[..., dict[str, Visit]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority(tmp_path / "tls")
    ours = authority.certificate("nodevet")
    told = ("--tls-ca-file", authority.file, "--tls-cert", ours.file, "--tls-key", ours.key)
    pool = Pool(tmp_path, *told)
    try:
        pool.scheduler()
        pool.worker("--resources", "eu=2")
        assert pool.address.startswith("tls://")
        behind = replace(engine, address=pool.address)
        for name, value in {
            "REQUIRE_ENCRYPTION": "true",
            "TLS__CA_FILE": authority.file,
            "TLS__CLIENT__CERT": ours.file,
            "TLS__CLIENT__KEY": ours.key,
        }.items():
            monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__{name}", str(value))
        visits = go(hosts("healthy", 3), engine=behind)
        assert {(one.status, one.why) for one in visits.values()} == {(Status.VETTED, "")}
        strange = Authority(tmp_path / "strange").certificate("nodevet")
        monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT", str(strange.file))
        monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY", str(strange.key))
        refused = go(hosts("healthy", 2), engine=behind)
    finally:
        pool.stop()
    assert {one.status for one in refused.values()} == {Status.NOT_VISITED}
    assert all(f"no Dask scheduler at {pool.address}: " in one.why for one in refused.values())


def test_closing_the_iterator_ends_the_tasks(
    pool: Pool, engine: DaskPool, hosts: Callable[..., list[Host]]
) -> None:
    wanted = [*hosts("healthy", 2), *hosts("hangs", 4)[2:]]
    visits = visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine))
    assert next(visits).status is Status.VETTED
    worker = pool.processes[1].pid
    assert children_of(worker)
    visits.close()
    wait_for(lambda: not children_of(worker))


def test_the_deadline_of_the_run_ends_the_tasks(
    pool: Pool,
    engine: DaskPool,
    hosts: Callable[..., list[Host]],
    go: Callable[..., dict[str, Visit]],
) -> None:
    wanted = [*hosts("healthy", 2), *hosts("hangs", 4, "dc1")[2:]]
    visits = go(wanted, engine=engine, within=600, vetted=2, second_try=True)
    found = Counter(each.status for each in visits.values())
    assert found == {Status.VETTED: 2, Status.INTERRUPTED: 2}
    wait_for(lambda: not children_of(pool.processes[1].pid))


def test_a_gate_does_not_wait_for_workers_that_never_come(pool: Pool, tmp_path: Path) -> None:
    """It ends with its wait and the time of one visit, not with the patience for a pool."""
    (tmp_path / "any.yaml").write_text("nodevet: 1\ntitle: any\nexpect: {clock_skew: 3600}\n")
    words = ["gate", "gpu1", "-b", "any.yaml", "--wait", "0s", "--deadline", "4s"]
    address = pool.address.replace("tcp:", "dask:")
    settings = f'engine = "{address}"\n[sites]\n"*" = "nobody"\n'
    (tmp_path / "nodevet.toml").write_text(settings)
    argv = [sys.executable, "-m", "nodevet", *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "not done within 4 s" in done.stdout


def test_a_pool_that_cannot_be_used_says_why(
    pool: Pool, engine: DaskPool, hosts: Callable[..., list[Host]], go, tmp_path: Path
) -> None:
    gone = go(hosts("healthy", 2), engine=DaskPool("tcp://127.0.0.1:9"))
    assert {one.status for one in gone.values()} == {Status.NOT_VISITED}
    assert all("no Dask scheduler at tcp://127.0.0.1:9" in one.why for one in gone.values())
    (tmp_path / "sitecustomize.py").write_text("import nodevet; nodevet.__version__ = '0.0.1'\n")
    older = pool.worker("--resources", "eu=1", PYTHONPATH=str(tmp_path))
    try:
        refused = go(hosts("healthy", 2), engine=engine)
    finally:
        older.terminate()
        older.wait()
    assert all("has nodevet 0.0.1 (protocol 1), this is" in one.why for one in refused.values())


def test_changes_never_go_through_a_pool_or_a_launcher(
    engine: DaskPool, hosts: Callable[..., list[Host]]
) -> None:
    with pytest.raises(FleetError, match="a task that runs again elsewhere would write twice"):
        SshExecutor(hosts("healthy", 1), Options(engine=engine))
