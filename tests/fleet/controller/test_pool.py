"""A real Dask scheduler with real workers, of which one is killed: every host is told once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodevet.fleet import FleetError, Options, Visit, visit
from nodevet.fleet.controller import launched
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.launchers import DaskPool, PoolLauncher
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd

pytestmark = pytest.mark.timeout(200)
DASK = Path(sys.executable).with_name("dask")
HOSTS = 12


class Pool:
    """A scheduler and its workers, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: object, **env: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [str(DASK), *map(str, argv)],
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
        wait_for(lambda: self.file.exists() and "tcp://" in self.file.read_text())
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


def wait_for(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    found = Pool(tmp_path_factory.mktemp("pool"))
    try:
        found.scheduler()
        found.worker("--resources", "eu=2", "--name", "first")
        yield found
    finally:
        found.stop()


@pytest.fixture(autouse=True)
def small_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "LEAST", 2)
    monkeypatch.setattr(PoolLauncher, "batch", 2)


@pytest.fixture(scope="module")
def node(sshd: Callable[..., Sshd]) -> Sshd:
    return sshd(addresses=[f"127.8.0.{n}" for n in range(1, 13)])


@pytest.fixture
def hosts(node: Sshd, fake: dict[str, str]) -> Callable[..., list[Host]]:
    def make(act: str, count: int = HOSTS, group: str = "dc1") -> list[Host]:
        return [
            Host(
                name=f"{group}-{n:02}",
                address=node.addresses[n % len(node.addresses)],
                port=node.port,
                user="root",
                python=fake[act],
                groups=frozenset({group}),
            )
            for n in range(count)
        ]

    return make


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


def test_closing_the_iterator_ends_the_tasks(
    pool: Pool, engine: DaskPool, hosts: Callable[..., list[Host]]
) -> None:
    wanted = [*hosts("healthy", 2), *hosts("hangs", 4)[2:]]
    visits = visit(wanted, Options(ssh_config=Path(os.devnull), engine=engine))
    assert next(visits).status is Status.VETTED
    worker = pool.processes[1].pid
    assert children(worker)
    visits.close()
    wait_for(lambda: not children(worker))


def children(pid: int) -> list[str]:
    return [
        word
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for word in file.read_text().split()
    ]


def test_a_pool_that_cannot_be_used_says_why(
    pool: Pool, engine: DaskPool, hosts: Callable[..., list[Host]], go, tmp_path: Path
) -> None:
    gone = go(hosts("healthy", 2), engine=DaskPool("tcp://127.0.0.1:9"))
    assert {one.status for one in gone.values()} == {Status.UNREACHABLE}
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
    with pytest.raises(FleetError, match="what is run again elsewhere would write twice"):
        SshExecutor(hosts("healthy", 1), Options(engine=engine))
