"""Fixtures for the tests of apply and rollback: worlds of modelled nodes, and commands on them.

`live` boots simulated nodes with a project, and its controllers can be killed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from in_this_process import Said, nodevet
from modelled_nodes import THP, KilledError, Model, World, cut, told_of
from msgspec.structs import replace

from nodevet import __version__
from nodevet.base import sshsig
from nodevet.baseline import load
from nodevet.fix.approval.policy import SIGNERS
from nodevet.fix.plan.plan_file import write
from nodevet.fix.settings import Rollout
from nodevet.model import Host
from nodevet_sim.nspawn import control
from simulated_fleet import Boot, SimulatedFleet


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """Makes a world: `world("n1", "n2", pages="never")`."""
    made: list[World] = []

    def make(*names: str, more: Any = None, **params: Any) -> World:
        folder = tmp_path / str(len(made))
        made.append(World(folder, names or ("n1",), params or {"pages": "never"}, more))
        return made[-1]

    make.cut = cut  # type: ignore[attr-defined]  # test modules cannot import this file
    make.killed = KilledError  # type: ignore[attr-defined]
    make.thp = THP  # type: ignore[attr-defined]
    yield make
    for each in made:
        each.close()


@cache
def key_of_ann() -> tuple[bytes, str]:
    """A private key, and what allowed_signers has of its public one."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
        return file.read_bytes(), " ".join(file.with_suffix(".pub").read_text().split()[:2])


JUDGED: dict[object, subprocess.CompletedProcess[bytes]] = {}
judged_by_ssh_keygen = sshsig.keygen


def judged_once(*words: str, at: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What ssh-keygen says of the same plan, signature and signers. A signer's line that is valid
    for a time only makes it say something else later: that is asked each time."""
    files = {file.name: file.read_bytes() for file in Path(at).iterdir()}
    if b"valid-" in files.get(SIGNERS, b""):
        return judged_by_ssh_keygen(*words, at=at, stdin=stdin)
    timeless = tuple(word for word in words if not word.startswith("verify-time="))
    asked = (os.environ["PATH"], timeless, stdin, *sorted(files.items()))
    if asked not in JUDGED:
        JUDGED[asked] = judged_by_ssh_keygen(*words, at=at, stdin=stdin)
    return JUDGED[asked]


class CommandRig:
    """The commands, in this process, on the boxes of a world: a project where ann may approve.

    The plan of what is wrong now is `plan.json`, approved; `run` is where it is applied.
    """

    def __init__(self, w: World, patch: pytest.MonkeyPatch) -> None:
        self.w = w
        self.project = w.folder
        self.run = w.folder / "runs" / "run"
        self.reached: set[str] = set()
        (self.project / "baselines").mkdir()
        file = self.project / "baselines" / "b.yaml"
        told = {each.check: told_of(each.params) for each in w.baseline.expectations}
        text = {"nodevet": 1, "title": "b", "expect": told, "fix": [*told]}
        file.write_text(json.dumps(text))
        private, public = key_of_ann()
        key = self.project / "key"
        key.touch(mode=0o600)
        key.write_bytes(private)
        key.with_suffix(".pub").write_text(f"{public}\n")
        (self.project / "allowed_signers").write_text(f"ann {public}\n")
        patch.setattr(sshsig, "keygen", judged_once)
        patch.setattr("nodevet.fleet.controller.ssh_executor.SshExecutor", self._worker)
        patch.setattr("nodevet.fix.rollout.session.time.sleep", lambda seconds: None)
        patch.chdir(self.project)
        patch.setenv("NODEVET_STORE", "none")
        (found,) = load(["b"], folders=[self.project / "baselines"], catalog=w.catalog)
        self.baseline = found

    def plan(self, name: str = "plan.json", **rollout: Any) -> Path:
        """An approved plan of what is wrong now."""
        quick = Rollout(**{"canary": 0, "settle": 0, "boot_settle": 0, **rollout})
        plan = replace(
            self.w.plan(),
            baselines={"b": self.baseline.sha256},
            nodevet=__version__,
            rollout=quick,
        )
        file = self.project / name
        file.write_bytes(write(plan))
        said = self("approve", file, "--key", self.project / "key", "--yes")
        assert said.code == 0, said
        return file

    def by_bob(self) -> "CommandRig":
        """bob plans, and ann alone may approve it, whatever its risk."""
        rules = "nodevet: 1\napprovals: {drain: 1, reboot: 1}\n"
        (self.project / "approval.yaml").write_text(rules)
        with (self.project / "allowed_signers").open("a") as signers:
            signers.write("bob ssh-ed25519 AAAA\n")
        plan = self.w.plan
        self.w.plan = lambda: replace(plan(), author="bob")  # type: ignore[method-assign]
        return self

    def apply(self, *words: str | Path, plan: Path | None = None, **rollout: Any) -> Said:
        file = plan or self.plan(**rollout)
        return self("apply", file, "--run", self.run, "-b", "b", *words)

    def resume(self, *words: str | Path) -> Said:
        return self("apply", "--resume", self.run, "-b", "b", *words)

    def rollback(self, *words: str | Path) -> Said:
        return self("rollback", self.run, "--settle", "0", *words)

    def report(self, form: str = "json") -> Said:
        return self("report", self.run, "--format", form)

    def told(self) -> Any:
        """The report, as JSON."""
        return json.loads(self.report().out)

    def outcomes(self) -> dict[str, str]:
        return {host["host"]: host["outcome"] for host in self.told()["hosts"]}

    def cut(self, lines: int, *, killed: bool = True) -> None:
        """Leave so many lines of the journal, as a controller that was killed does, which keeps
        no result."""
        path = self.run / "journal.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
        if killed:
            (self.run / "result.json").unlink(missing_ok=True)

    @property
    def lines(self) -> int:
        return (self.run / "journal.jsonl").read_bytes().count(b"\n")

    def __call__(self, *words: str | Path) -> Said:
        return nodevet(*words)

    @contextmanager
    def _worker(self, hosts: Sequence[Host], options: Any) -> Iterator[Any]:
        """Knows, as fleet's SshExecutor does, the hosts it was given and no other."""
        rig, names = self, {host.name for host in hosts}

        class Executor(Model):
            def open(self, host: str) -> None:
                rig.reached.add(host)
                super().open(host)

            def probe(self, host: str) -> bytes:
                """Only the sections that were asked for."""
                document = json.loads(super().probe(host))
                read = options.sections or document["sections"]
                there = {name: part for name, part in document["sections"].items() if name in read}
                return json.dumps({**document, "sections": there}).encode()

            def close(self, host: str) -> None:
                if host not in names:
                    raise KeyError(host)
                super().close(host)

        executor = Executor(self.w.boxes)
        executor.fault = self.w.executor.fault
        yield executor


@pytest.fixture
def rig(world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a project with a world: `rig("n1", "n2", pages="never")`."""
    return lambda *names, **params: CommandRig(world(*names, **params), monkeypatch)


class Live:
    """A fleet of simulated nodes, a project with a baseline, and Ann, who may approve."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        fleet.people("ann", "bob")
        self._fleet = fleet
        self.folder = fleet.project
        self.place = fleet.place
        self.nodes = [*fleet.hosts]
        self._running: dict[int, tuple[Path, subprocess.Popen[bytes]]] = {}

    def end(self) -> None:
        """Kill what a test that failed left."""
        for _, process in self._running.values():
            process.kill()
            process.wait()

    # --- nodevet ---

    def start(self, *words: Any) -> int:
        """The process id of `nodevet WORDS`, which runs in the project."""
        log = self.folder / f"{len(list(self.folder.glob('*.log')))}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "nodevet", *map(str, words)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
            )
        self._running[process.pid] = log, process
        return process.pid

    def wait(self, pid: int) -> tuple[int, str]:
        """Its exit code, and all that it wrote."""
        log, process = self._running.pop(pid)
        return process.wait(), log.read_text(errors="replace")

    def nodevet(self, *words: Any) -> tuple[int, str]:
        return self.wait(self.start(*words))

    def kill(self, pid: int) -> list[int]:
        """SIGKILL; the processes that it had started, and that are left to notice it."""
        os.kill(pid, signal.SIGSTOP)
        begun = self.children(pid)
        os.kill(pid, signal.SIGKILL)
        return begun

    @staticmethod
    def children(pid: int) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended
                if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(path.parent.name))
        return found

    @staticmethod
    def gone(pids: Sequence[int], seconds: float) -> bool:
        """Whether these processes end within this time."""
        limit = time.monotonic() + seconds
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def approved(self, name: str = "plan.json", *options: str, author: str = "ann") -> Path:
        """A plan of all that is wrong now, which ann approves; `options` say how it is carried
        out."""
        plan, inventory = self.folder / name, self.place.inventory
        code, said = self.nodevet(
            *("plan", "-i", inventory, "-b", "base", "--author", author, "-o", plan),
            *(*options, "--deadline", "150", "--project", self.folder),
        )
        assert code == 1 and plan.exists(), said
        words = ("--key", self.folder / "ann", "--yes", "--project", self.folder)
        code, said = self.nodevet("approve", plan, *words)
        assert code == 0, said
        return plan

    # --- the nodes ---

    def ask(self, do: str, node: str, **rest: Any) -> Any:
        return control.ask(self.place, {"do": do, "node": node, **rest})

    def set(self, node: str, *pairs: str) -> None:
        self.ask("set", node, values=[pair.partition("=")[::2] for pair in pairs])

    def shell(self, script: str, *nodes: str) -> dict[str, str]:
        """What a script of root says on these nodes, on all of them at once."""
        asked = nodes or self.nodes
        with ThreadPoolExecutor(len(asked)) as threads:
            said = threads.map(lambda node: self._fleet.run_on(node, script), asked)
            return dict(zip(asked, said, strict=True))

    def states(self, script: str, *nodes: str) -> dict[str, dict[str, str]]:
        """Each path of a node's disk that is not as it was made, and what the script says.

        The script writes lines of a name, a tab, and a value.
        """
        said = self.shell(script, *nodes)
        return {
            node: {
                **{
                    path: f"{before} -> {after}"
                    for path, before, after in self.ask("diff", node)["changes"]
                },
                **dict(line.split("\t", 1) for line in text.splitlines()),
            }
            for node, text in said.items()
        }


@pytest.fixture(scope="module")
def live(boot: Boot) -> Iterator[Callable[[str, str, str], Live]]:
    """Boots a fleet: `live(name, scenario, baseline)`."""
    made: list[Live] = []

    def start(name: str, scenario: str, baseline: str) -> Live:
        made.append(Live(boot(name, scenario, baseline)))
        return made[-1]

    yield start
    for each in made:
        each.end()
