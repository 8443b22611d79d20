"""Real sshds on loopback, and stand-ins for a node's python3 that misbehave in known ways."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from unittest.mock import patch

import preloaded_workers
import pytest
from left_behind import shared

from nodevet import fleet
from nodevet.fleet import Options, Visit, visit
from nodevet.fleet.controller import dispatcher
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, make_key

# A python3 that takes payload and request as the real one does, and answers by itself.
FAKE = """#!{python} -ISE
import hashlib, json, os, signal, sys, time
stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
stdin.read(int(stdin.readline()))
request = json.loads(stdin.read())
text = json.dumps({{"schema": 1, "probe": "fake", "sections": {{}}, "pad": "x" * 2000}}).encode()
digest = hashlib.sha256(text).hexdigest()
head = ("\\n\\x1eNODEVET %s %d %s\\n" % (request["nonce"], len(text), digest)).encode()
def say(words):
    stdout.write(words)
    stdout.flush()
def session():
    pid = os.getppid()
    while "sshd" not in open("/proc/%d/comm" % pid).read():
        pid = int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
    return pid
{act}
"""

ACTS = {
    "healthy": "say(head + text)",
    "cut": "say(head + text[:1000]); sys.exit(0)",
    "killed": "say(head + text[:9]); time.sleep(1); os.kill(session(), 9); time.sleep(60)",
    "stopped": "say(head); os.kill(session(), signal.SIGSTOP); time.sleep(180)",
    "flood": "[say(b'x' * (1 << 20)) for _ in range(50)]; say(head + text)",
    "errors": "sys.stderr.write('y' * 2500000); say(head + text)",
    "altered": "say(head + text.replace(b'x', b'y'))",
    "fails": "sys.stderr.write('no such \\x1b[31mluck\\n'); sys.exit(3)",
    "silent": "sys.exit(0)",
    "hangs": "time.sleep(180)",
    "late": "time.sleep(1); say(head + text)",
}


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return make_key(tmp_path_factory.mktemp("key") / "id_ed25519")


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of the stand-ins, by what they do."""
    folder = tmp_path_factory.mktemp("fake")
    python = Path(sys.executable).resolve()
    for name, act in ACTS.items():
        script = folder / name
        script.write_text(FAKE.format(python=python, act=act))
        script.chmod(0o755)
    return {name: str(folder / name) for name in ACTS}


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory, key: KeyPair) -> Iterator[Callable[..., Sshd]]:
    """Starts sshds that last as long as the module; they must be left without sessions."""
    numbers = count()
    with ExitStack() as stack:
        started = []

        def start(**options: object) -> Sshd:
            folder = tmp_path_factory.mktemp(f"sshd{next(numbers)}")
            options.setdefault("authorized_key", key.public)
            with shared():
                server = stack.enter_context(Sshd(folder, **options))
            started.append(server)
            return server

        yield start
        assert not lingering(started)


@pytest.fixture
def hosts_on(key: KeyPair, fake: dict[str, str]) -> Callable[..., list[Host]]:
    """Hosts of one sshd, by name, each with what its python3 does."""

    def make(server: Sshd, acts: Mapping[str, str]) -> list[Host]:
        return [
            Host(
                name=name,
                address=server.address,
                port=server.port,
                user="root",
                key_file=str(key.path),
                python=fake[act],
            )
            for name, act in acts.items()
        ]

    return make


def lingering(servers: list[Sshd], patience: float = 30) -> list[int]:
    """The session processes that are still there after some patience."""
    end = time.monotonic() + patience
    while left := [pid for server in servers for pid in server.sessions()]:
        if time.monotonic() > end:
            return left
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
    return []


def children() -> set[int]:
    """This process's children, zombies included."""
    return {
        int(word)
        for file in Path("/proc/self/task").glob("*/children")
        for word in file.read_text().split()
    }


@pytest.fixture(scope="session")
def _preloaded() -> None:
    """What workers are copies of is a child of this process before any test counts them."""
    preloaded_workers.Place.find()


@pytest.fixture(scope="session")
def tools(_preloaded: None) -> dict[str, Callable[..., object]]:
    return {"lingering": lingering, "children": children}


class Clock:
    """A clock that a test sets ahead."""

    ahead = 0.0
    time = staticmethod(time.time)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def visited(hosts: list[Host], options: Options, vetted: int) -> Iterator[Visit]:
    """The visits. The deadline of the run, `within`, passes once so many hosts are vetted."""
    clock, count = Clock(), 0
    with patch.object(fleet, "time", clock), patch.object(dispatcher, "time", clock):
        for one in visit(hosts, options):
            yield one
            count += one.status is Status.VETTED
            if count == vetted:
                clock.ahead = options.within or 0


@pytest.fixture(scope="session")
def go(_preloaded: None) -> Callable[..., dict[str, Visit]]:
    """Visits hosts; the visits by host, each host exactly once, and no child left. `vetted`: see
    `visited`."""

    def run(hosts: list[Host], *, vetted: int = -1, **options: object) -> dict[str, Visit]:
        before = children()
        options.setdefault("ssh_config", Path(os.devnull))
        options.setdefault("deadline", 60)
        visits = list(visited(hosts, Options(**options), vetted))
        assert sorted(one.host for one in visits) == sorted(host.name for host in hosts)
        assert children() <= before
        return {one.host: one for one in visits}

    return run
