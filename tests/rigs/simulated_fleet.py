"""A fleet of simulated nodes and a project: what every test on nodes starts from.

@pytest.fixture(scope="module")
def fleet(boot):
    fleet = boot("cap", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    return fleet
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import kept_code
import pytest
from shown_folders import leader

from nodevet.inventory import read
from nodevet.model import Host
from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.place import LAYER, QUICK_KEX, FleetFolder, keep_cache

Done = subprocess.CompletedProcess[str]


class SimulatedFleet:
    """Nodes that run, and the folder of a project, which is the home of whoever runs nodevet.

    Nothing is recorded, so that with one -b the nodes read only what this baseline judges; a module
    about the history sets `recorded`."""

    def __init__(self, name: str, project: Path) -> None:
        self.name = name
        self.project = project
        self.place = FleetFolder(name)
        self.recorded = False

    # --- the project ---

    def people(self, *names: str) -> None:
        """Each gets a key, a file of this name, and may approve."""
        for name in names:
            key = self.project / name
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
            with (self.project / "allowed_signers").open("a") as signers:
                signers.write(f"{name} {public}\n")

    def nodevet(
        self, *words: object, seconds: float = 400, env: Mapping[str, str] | None = None
    ) -> Done:
        """`nodevet WORDS` in the project, in a process of its own. `env`: added to it."""
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *map(str, words)],
            cwd=self.project,
            env={
                **os.environ,
                "HOME": str(self.project),
                "COLUMNS": "100",
                **({} if self.recorded else {"NODEVET_STORE": "none"}),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def run_in_project(self, *words: object) -> Done:
        """The same, of this project."""
        return self.nodevet(*words, "--project", self.project)

    def shell(self, text: str, **env: str) -> tuple[int, str]:
        """The exit code and the output of a command line, typed in the project. `nodevet sim set`
        is about this fleet."""
        done = subprocess.run(
            ["bash", "-c", text.replace("nodevet sim set", f"nodevet sim set --fleet {self.name}")],
            cwd=self.project,
            env={
                **os.environ,
                "HOME": str(self.project),
                "COLUMNS": "100",
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    def kill_when(self, there: Callable[[], object], *words: object, alone: bool = False) -> None:
        """`nodevet WORDS` in the project, killed as soon as `there` is true. `alone`: what it
        started is not killed with it."""
        kill = os.kill if alone else os.killpg
        with subprocess.Popen(
            [sys.executable, "-m", "nodevet", *map(str, words)],
            cwd=self.project,
            env={**os.environ, "HOME": str(self.project), "NODEVET_STORE": "none"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as controller:
            try:
                while not there():
                    assert controller.poll() is None, "it ended before"
                    time.sleep(0.02)
            finally:
                with suppress(ProcessLookupError):
                    kill(controller.pid, signal.SIGKILL)

    def baseline(self, name: str, text: str) -> None:
        """A baseline of the project."""
        folder = self.project / "baselines"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def capture(self, node: str, name: str) -> None:
        """A baseline of the project: what `nodevet capture` finds on this node."""
        file = self.project / f"{name}.yaml"
        reach = ("-i", self.place.inventory, "--deadline", "150")
        done = self.run_in_project("capture", *reach, "--limit", node, "-o", file)
        assert done.returncode == 0, done.stderr
        self.baseline(name, file.read_text(encoding="utf-8"))

    def vetted(self, *words: object) -> dict[str, Any]:
        """What a check says of each host."""
        done = self.run_in_project("check", *words, "--all", "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        return {host["host"]: host for host in json.loads(done.stdout)["hosts"]}

    @property
    def reach(self) -> tuple[str | Path, ...]:
        """The options that lead to the nodes and to the baseline `base`, with time for two busy
        CPUs to play the nodes."""
        return ("-i", self.place.inventory, "-b", "base", "--deadline", "150")

    # --- the nodes ---

    @property
    def hosts(self) -> dict[str, Host]:
        return {host.name: host for host in read((), inventories=[str(self.place.inventory)])}

    def sim(self, verb: str, *words: object, codes: tuple[int, ...] = (0,)) -> str:
        """What `nodevet sim VERB` says of this fleet."""
        done = self.nodevet("sim", verb, "--fleet", self.name, *words)
        assert done.returncode in codes, done
        return done.stdout

    def run_on(self, node: str, script: str, *, check: bool = True) -> str:
        """What a script of root says on a node; it has to succeed, unless told otherwise."""
        address = self.hosts[node].address
        done = subprocess.run(
            [
                *("ssh", "-F", "none", "-l", "root", "-i", str(self.place.key)),
                *("-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"),
                *("-o", f"UserKnownHostsFile={self.place.known_hosts}", "-o", "LogLevel=ERROR"),
                *("-o", f"KexAlgorithms={QUICK_KEX}"),
                *("-o", "BatchMode=yes", str(address), script),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert not check or done.returncode == 0, done
        return done.stdout

    def file(self, node: str, path: str) -> str | None:
        """The text of a file of a node, read without a login; None if there is none, or if the node
        does not run."""
        try:
            root = Path("/proc", str(leader(self.name, node)), "root")
            return (root / path.lstrip("/")).read_text()
        except (OSError, StopIteration, AssertionError):
            return None

    def up(self, scenario: str, layer: Path | None) -> None:
        """`layer`: see kept_code."""
        (self.project / "nodes.yaml").write_text(scenario, encoding="utf-8")
        words = ("sim", "up", "nodes.yaml", "--name", self.name)
        done = self.nodevet(*words, env={LAYER: str(layer)} if layer else {})
        assert done.returncode == 0, done

    def down(self) -> None:
        if self.place.folder.exists():
            done = self.nodevet("sim", "down", self.name)
            assert done.returncode == 0, done


Boot = Callable[..., SimulatedFleet]


@contextmanager
def booting(folders: pytest.TempPathFactory, layer: Path) -> Iterator[Boot]:
    if missing():
        pytest.skip("; ".join(missing()))
    with ExitStack() as stack:

        def boot(
            name: str, scenario: str, baseline: str = "", *, plain: bool = False
        ) -> SimulatedFleet:
            fleet = SimulatedFleet(f"{name}{os.getpid()}", folders.mktemp(name))
            if baseline:
                fleet.baseline("base", baseline)
            stack.callback(fleet.down)
            fleet.up(scenario, None if plain else layer)
            return fleet

        yield boot


@pytest.fixture(scope="session")
def compiled_once() -> Iterator[None]:
    """What the fleets of this session need is compiled once."""
    with ExitStack() as stack:
        if not missing():
            stack.enter_context(keep_cache())
        yield


@pytest.fixture(scope="session")
def layer(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nodevet sends to nodes, compiled once; see kept_code."""
    folder = tmp_path_factory.mktemp("layer")
    if not missing():
        kept_code.write_layer(folder)
    return folder


@pytest.fixture(scope="module")
def boot(layer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boot]:
    """Boots nodes: `boot(name, scenario)`, or `boot(name, scenario, baseline)` with a baseline
    `base` in the project. After the module's tests they are down, however those ended.
    `plain=True`: with this machine's python3 as it is; see kept_code."""
    with booting(tmp_path_factory, layer) as boot:
        yield boot


@pytest.fixture(scope="session")
def boot_once(layer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boot]:
    """The same for the tests of several modules: the nodes are up to the end."""
    with booting(tmp_path_factory, layer) as boot:
        yield boot
