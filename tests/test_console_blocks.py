"""Every command that a page shows at a prompt is run, and does what the page says.

`make console` runs the same and writes into the pages what comes out; see rigs/console_blocks.py
for the comments that a page has for this.

All pages share eight simulated nodes, those of `nodevet sim up demo`, and a workstation; each page
has a folder of its own, with the inventory of the eight as fleet.yaml, and a home whose ssh reaches
them by their names.
"""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from console_blocks import SHELL, Block, blocks, is_alike, plain_text, rewritten_page
from shown_folders import show

from nodevet.inventory import read
from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.place import FleetFolder

pytestmark = pytest.mark.timeout(600)

REPO = Path(__file__).parents[1]
WRITE = os.environ.get("NODEVET_CONSOLE") == "write"
LAST = REPO / "docs" / "simulation.md"  # it ends the nodes
PAGES = [
    *sorted(REPO.glob("*.md")),
    REPO / "sim" / "README.md",
    *sorted(path for path in (REPO / "docs").glob("*.md") if path != LAST),
    *sorted((REPO / "docs" / "integrations").glob("*.md")),
    LAST,
]
HELD = {"history.md", "past.md"}  # by tests of their own, which know the five nights
OWN_TEST = {"slurm.md", "kubernetes.md"}  # which know a Slurm, or an API server
SHOWN_PLAN = "7f3a91c2"  # what pages call their plan, and -1 its run
WIDTH = "100"
ASKED = re.compile(rb"(?:Type (\S+) to [^\n]*|\[y/N\]): $")
LONGEST = 150  # seconds that a command may take
SOONER = (  # what pages leave at its default, and how long is printed, which is not compared
    (r"\bnodevet (plan|rollback) (?=[^-]|-\w|--[^h])", r"nodevet \1 --settle 1s "),
    (
        r"\bnodevet check -i fleet.yaml(?! --limit)",
        "nodevet check --connect-timeout 5s -i fleet.yaml",
    ),
)
PLAIN = re.compile(r"nodevet( +([\w./:=,@%+-]+|'[^'\n]*'))+ *(#[^\n]*)?")
WORKSTATION = """\
sim: 1
nodes:
  ws001: {gpus: {profile: rtx-4090, count: 1}, sockets: 1, cores: 8, faults: [governor-powersave]}
"""


class World:
    """The simulated nodes, and the person at the prompt, whose SSH key may approve."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home
        self.fleets = {name: f"{name}{os.getpid()}" for name in ("demo", "incident", "desk")}
        self.up = ""  # what `nodevet sim up demo` said
        self.runs: list[str] = []  # of fixes, on this page
        self.carried: dict[str, frozenset[tuple[Path, int]]] = {}
        self.broken: set[str] = set()  # nodes to which a page gave faults
        self.took: list[tuple[float, str]] = []  # seconds, and which command
        (home / ".ssh").mkdir(mode=0o700)
        for name, file in (("alice", "id_ed25519"), ("bob", "bob")):
            key = home / ".ssh" / file
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
            subprocess.run(made, check=True)
        (home / "bin").mkdir()
        ssh = home / "bin" / "ssh"  # OpenSSH asks the password database for the home
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {home}/.ssh/config "$@"\n')
        ssh.chmod(0o755)

    def boot(self) -> None:
        """Boot the nodes, as `nodevet sim up demo` does, once for all pages."""
        done = self.shell(f"nodevet sim up demo --name {self.fleets['demo']}")
        assert done.returncode == 0, done.stdout
        self.up = done.stdout
        place = FleetFolder(self.fleets["demo"])
        hosts = {host.name: host.address for host in read((), inventories=[str(place.inventory)])}
        hosts["gpu017"] = hosts["gpu003"]  # of the page about incidents
        config = [f"Host {name}\n  HostName {address}" for name, address in hosts.items()]
        config += ["Match all\n  User root", f"  IdentityFile {place.key}"]
        config += [f"  UserKnownHostsFile {place.known_hosts}"]
        (self.home / ".ssh" / "config").write_text("\n".join(config) + "\n")

    def enter(self, page: Path) -> None:
        """A folder for the commands of a page."""
        self.runs = []
        self.project = self.home / "-".join(page.relative_to(REPO).with_suffix("").parts).lower()
        self.project.mkdir()
        signers = ""
        for name, file in (("alice", "id_ed25519.pub"), ("bob", "bob.pub")):
            key = (self.home / ".ssh" / file).read_text().split()[:2]
            signers += f"{name}@example.com {' '.join(key)}\n"
        (self.project / "allowed_signers").write_text(signers)
        for bundle in sorted((REPO / "docs" / "incidents").glob("*.json.gz")):
            (self.project / bundle.name).write_bytes(bundle.read_bytes())
        inventory = FleetFolder(self.fleets["demo"]).inventory
        if inventory.exists():
            (self.project / "fleet.yaml").write_bytes(inventory.read_bytes())

    def leave(self) -> None:
        """What a page broke is as it was, for the next one."""
        for node in self.broken:
            self.shell(f"nodevet sim set --fleet {self.fleets['demo']} {node} 'faults=[]'")
        self.broken = set()

    def down(self) -> None:
        for fleet in self.fleets.values():
            if FleetFolder(fleet).folder.exists():
                self.shell(f"nodevet sim down {fleet}")

    # --- commands ---

    def run(self, text: str, node: str = "") -> "subprocess.CompletedProcess[str]":
        """A command of a page, with the page's names for the nodes and the run turned into theirs,
        and back in what it prints."""
        began = time.monotonic()
        done = self._run(text, node)
        self.took.append((time.monotonic() - began, f"{self.project.name}: {text.splitlines()[0]}"))
        return done

    def _run(self, text: str, node: str) -> "subprocess.CompletedProcess[str]":
        if text.partition("#")[0].strip() == "nodevet sim up demo":
            return subprocess.CompletedProcess(text, 0, self._back(self.up))
        self.broken |= set(re.findall(r"nodevet sim set (\S+)", text))
        text = self._there(text)
        if node:
            fleet = self.fleets["desk" if node == "ws001" else "demo"]
            self.ready(fleet, node)
            self.carry(fleet, node)
            where = "unset SSH_CLIENT SSH_CONNECTION;"  # which a machine at hand has not
            where += f" PATH={sys.prefix}/bin:$PATH PYTHONDONTWRITEBYTECODE=1 TERM=dumb"
            text = f"{where} COLUMNS={WIDTH} script -qec {shlex.quote(text)} /dev/null"
            text = f"nodevet sim ssh --fleet {fleet} {node} {shlex.quote(text)}"
        done = self.shell(text, echo=not node)
        done.stdout = self._back(done.stdout)
        return done

    def ready(self, fleet: str, node: str) -> None:
        """A node that can run nodevet. The workstation is booted when a page first asks for it."""
        if not FleetFolder(fleet).folder.exists():
            (self.home / "desk.yaml").write_text(WORKSTATION)
            done = self.shell(f"nodevet sim up {self.home}/desk.yaml --name {fleet}")
            assert done.returncode == 0, done.stdout
        ssh = f"nodevet sim ssh --fleet {fleet} {node}"
        if self.shell(f"{ssh} test -e {REPO}/pyproject.toml").returncode:
            show(fleet, node, self.home)

    def carry(self, fleet: str, node: str) -> None:
        """The page's files into /root, where a command of the node begins, if any is new."""
        files = [path for path in self.project.rglob("*") if path.is_file()]
        now = frozenset((path, path.stat().st_mtime_ns) for path in files)
        if self.carried.get(node) != now:
            there = f"nodevet sim ssh --fleet {fleet} {node} tar -xf -"
            self.shell(f"tar -C {self.project} -cf - . | {there}")
            self.carried[node] = now

    def shell(self, text: str, *, echo: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run by bash at a terminal; what it asks for, `Type X to ...:` or `[y/N]:`, is typed."""
        environment = {
            **{name: value for name, value in os.environ.items() if name[:8] != "NODEVET_"},
            "HOME": str(self.home),
            "USER": "alice",
            "LOGNAME": "alice",
            "PATH": f"{self.home}/bin:{sys.prefix}/bin:{os.environ['PATH']}",
            "COLUMNS": WIDTH,
            "TERM": "dumb",  # no colour, no bar
        }
        ours, theirs = pty.openpty()
        if not echo:  # the terminal on the node does
            modes = termios.tcgetattr(theirs)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(theirs, termios.TCSANOW, modes)
        child = subprocess.Popen(
            _words(text),
            cwd=self.project, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        printed, answered = b"", 0
        end = time.monotonic() + LONGEST
        try:
            while chunk := _chunk(ours, end - time.monotonic()):
                printed += chunk
                if asked := ASKED.search(printed, answered):
                    answered = len(printed)
                    os.write(ours, (asked[1] or b"y") + b"\n")
            child.wait(timeout=LONGEST)
        finally:
            os.close(ours)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        said = printed.decode().replace("\r", "").strip("\n")
        return subprocess.CompletedProcess(text, child.returncode, said)

    def _there(self, text: str) -> str:
        if not WRITE:
            for pattern, sooner in SOONER:
                text = re.sub(pattern, sooner, text)
        for name, fleet in self.fleets.items():
            text = text.replace(f"/run/nodevet-sim/{name}/", f"/run/nodevet-sim/{fleet}/")
            text = text.replace(f"nodevet sim down {name}", f"nodevet sim down {fleet}")
            text = text.replace(f"sim up {name}.yaml", f"sim up {name}.yaml --name {fleet}")
        fleet = self.fleets["demo"]
        text = re.sub(r"sim (set|ssh|reboot|diff) (?!-)", rf"sim \1 --fleet {fleet} ", text)
        text = re.sub(
            r"nodevet sim (down|inventory)(?= *([#>]|$))", rf"nodevet sim \1 {fleet}", text
        )
        return text.replace(f"{SHOWN_PLAN}-1", self.runs[-1]) if self.runs else text

    def _back(self, text: str) -> str:
        for name, fleet in self.fleets.items():
            text = text.replace(fleet, name)
        text = text.replace(f"{self.project}/", "").replace(f"{REPO}/", "")
        text = re.sub(rf"\([\w./-]*\b{REPO.name}/baselines/", "(baselines/", text)  # below home
        self.runs += re.findall(r"\bruns/([0-9a-f]{8}-\d+)", text)
        plans = {run.split("-")[0] for run in self.runs}
        for plan in plans | set(re.findall(r"(?i)\bplan ([0-9a-f]{8})\b", text)):
            text = text.replace(plan, SHOWN_PLAN)
        return text


def _words(text: str) -> list[str]:
    """What runs a command: bash, unless it would only start nodevet with plain words."""
    if PLAIN.fullmatch(text):
        return [sys.executable, "-m", *shlex.split(text, comments=True)]
    return ["bash", "-o", "pipefail", "-c", text]


def _chunk(descriptor: int, seconds: float) -> bytes:
    """What comes next; nothing at the end, or after so many seconds."""
    if not select.select([descriptor], [], [], max(0, seconds))[0]:
        raise TimeoutError(f"no end within {LONGEST} s")
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side of the terminal is closed
        return b""


@pytest.fixture(scope="module")
def world(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if missing():
        pytest.skip("; ".join(missing()))
    with ExitStack() as stack:
        world = World(tmp_path_factory.mktemp("home"))
        stack.callback(world.down)
        world.boot()
        yield world
        slowest = [f"{seconds:6.1f} s  {command}\n" for seconds, command in world.took]
        sys.stdout.writelines(sorted(slowest, reverse=True)[:12])  # for pytest -s


def console(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind == "console"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_console_block_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        prompt = re.search(r"^\$ [a-z]", block.text, re.M) and block.kind in {"", "text"}
        where = f"{page.name}:{block.line}"
        assert block.kind not in SHELL and not prompt, f"{where}: make it a console block"
        if block.kind == "console":
            assert block.commands and block.exits
            unasked = block.mark("not run") and page.name not in HELD
            assert not (unasked and block.mark("exit"))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if console(page) and page.name not in OWN_TEST],
    ids=lambda page: str(page.relative_to(REPO)),
)
def test_the_commands_of_a_page_give_the_output_it_shows(page: Path, world: World) -> None:
    world.enter(page)
    wrong, differs = [], []
    for block in blocks(page):
        if name := block.mark("file"):
            target = world.project / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        if block.kind != "console" or block.mark("not run"):
            continue
        for text in block.before_commands:
            done = world.run(text)
            assert done.returncode == 0, f"{page.name}:{block.line}: {text}\n{done.stdout}"
        for command, code in zip(block.commands, block.exits, strict=True):
            done = world.run(command.text, block.mark("on"))
            place = f"{page.name}:{command.line}: $ {command.text}"
            if done.returncode != code or "Traceback" in done.stdout:
                wrong.append(f"{place}\nended with {done.returncode}, not {code}\n{done.stdout}")
            elif command.shown and not is_alike(command.shown, done.stdout):
                differs.append((command, done.stdout))
                was = plain_text(command.shown)
                now = plain_text(done.stdout)
                wrong.append(f"{place}\nprinted\n{now}\ninstead of\n{was}\n\n{done.stdout}")
    world.leave()
    if WRITE and differs:
        text = page.read_text(encoding="utf-8")
        for command, printed in reversed(differs):
            text = rewritten_page(text, command, printed)
        page.write_text(text, encoding="utf-8")
    assert not wrong, "\n\n".join(wrong)


PAGE = """\
# A page

<!-- before: true -->
<!-- exit: 1 0 -->
```console
$ nodevet check gpu001 \\
    -b site
FAIL  power_limit  490 W, expected 700 W  gpu001
...
$ printed
8 hosts: 2 ok, ... fail · 20.8 s

$ cat <<'END'   # text
$ no command
END
```
"""


def test_blocks_are_read_with_their_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (block,) = blocks(page)
    assert (block.line, block.kind, block.before_commands, block.exits) == (
        5,
        "console",
        ["true"],
        (1, 0),
    )
    first, second = block.commands
    assert (first.line, first.text) == (6, "nodevet check gpu001 \\\n    -b site")
    assert first.shown.splitlines()[-1] == "8 hosts: 2 ok, ... fail · 20.8 s"
    assert (second.line, second.shown) == (13, "")
    assert second.text == "cat <<'END'   # text\n$ no command\nEND"


PRINTED = """\
FAIL   power_limit   490 W, expected 700 W   gpu001

$ printed
8 hosts: 2 ok, 6 fail · 7.1 s
"""


def test_values_that_differ_between_runs_are_masked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (block,) = blocks(page)
    assert is_alike(block.commands[0].shown, PRINTED)
    assert not is_alike(block.commands[0].shown, PRINTED.replace("490", "491"))
    assert not is_alike(block.commands[0].shown, PRINTED.replace("2 ok", "1 ok"))
    assert not is_alike(block.commands[0].shown, PRINTED + "one line more\n")


def test_the_output_is_written_into_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (block,) = blocks(page)
    assert rewritten_page(PAGE, block.commands[0], PRINTED) == PAGE.replace(
        block.commands[0].shown + "\n", PRINTED
    )
