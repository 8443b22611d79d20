"""Measures a sweep from here, through one launcher, through three, and by a Dask pool: how long it
takes, and the CPU that it takes here and there.

Usage: launchers.py [--hosts 240] [--rounds 3] [--delay 1.0]. Writes what it found to standard
output, as Markdown. The nodes are canned: one process that answers for all of them, each answer
`--delay` seconds late, as reading a node takes. The launchers are sshds on this machine, which so
does the work of all of them: read the wall times as ratios. What they share is waiting, not CPU.
CPU of the nodes counts nowhere; that of ssh counts here, that of sshd and all it starts there.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import canned
import eight_gpus
from contenders import NODEVET, BenchmarkError, prove_vetted

from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line, make_key

HERE = Path(__file__).parent
SHARD = Path(sys.executable).with_name("nodevet-shard")
DASK = Path(sys.executable).with_name("dask")
AT_A_TIME = 20  # hosts, by each launcher
START = 60  # seconds


@dataclass(frozen=True)
class Cost:
    """Of one sweep, in seconds: wall time, CPU here, CPU of launchers or workers."""

    wall: float
    here: float
    there: float


@contextmanager
def nodes(folder: Path, count: int, delay: float) -> Iterator[tuple[Path, Path]]:
    """An inventory of canned nodes with eight GPUs, and their known_hosts."""
    document = eight_gpus.evidence(folder)
    key, host_key = make_key(folder / "id"), make_key(folder / "host_key")
    told = [count, document, f"{key.path}.pub", host_key.path, delay]
    argv = [sys.executable, str(HERE / "canned.py"), *map(str, told)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            names = [canned.address(number) for number in range(count)]
            known = folder / "known_hosts"
            known.write_text("".join(known_hosts_line(name, port, host_key) for name in names))
            hosts = {f"node{n:05}": {"address": name, "port": port} for n, name in enumerate(names)}
            defaults = {"key_file": str(key.path), "expect_hostname": False}
            inventory = folder / "fleet.yaml"
            inventory.write_text(json.dumps({"nodevet": 1, "defaults": defaults, "hosts": hosts}))
            yield inventory, known
        finally:
            server.terminate()


def bastion(folder: Path, number: int, key: KeyPair, known: Path) -> tuple[Sshd, str]:
    """An sshd whose home reaches the nodes, and the command that starts nodevet-shard there."""
    server = Sshd(folder / f"bastion{number}", authorized_key=key.public)
    ssh = server.folder / "home" / ".ssh"
    ssh.mkdir(mode=0o700, parents=True)
    config = f"Host *\n  IdentityFile {key.path}\n  UserKnownHostsFile {known}\n"
    (ssh / "config").write_text(config, encoding="utf-8")
    return server, f"ssh -F {folder}/bastions.conf -p {{port}} {server.address} {SHARD}"


def cost(command: Sequence[str], report: Path, hosts: int, elsewhere: Sequence[int]) -> Cost:
    """Of one sweep; `elsewhere`: processes that start what visits. Raises BenchmarkError where it
    did not do its work."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    far = sum(map(cpu, elsewhere))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=report.parent,
        env={**os.environ, "XDG_STATE_HOME": str(report.parent / "state")},
    )
    wall, after = time.monotonic() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    prove_vetted(done, report, hosts)
    time.sleep(1)  # for what is far to be collected
    here = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, here, sum(map(cpu, elsewhere)) - far)


def cpu(pid: int) -> float:
    """Seconds that a process and those that it started and collected have had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def pool(folder: Path, home: Path, workers: int) -> Iterator[tuple[str, list[int]]]:
    """A Dask scheduler with workers; its address, and their processes."""
    file = folder / "scheduler.json"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    argvs = [["scheduler", "--port", "0", "--scheduler-file", str(file), *common]]
    one = ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", *common]
    argvs += [one] * workers
    running: list[subprocess.Popen[bytes]] = []
    env = {**os.environ, "HOME": str(home)}
    try:
        for argv in argvs:
            with (folder / f"dask{len(running)}.log").open("wb") as log:
                running.append(
                    subprocess.Popen([str(DASK), *argv], stdout=log, stderr=log, env=env)
                )
            end = time.monotonic() + START
            while not file.exists():
                if time.monotonic() > end:
                    raise BenchmarkError("the Dask scheduler did not start")
                time.sleep(0.1)
        time.sleep(5)
        address = str(json.loads(file.read_text())["address"]).replace("tcp://", "dask://")
        yield address, [process.pid for process in running]
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Cost]:
    """The medians of each."""
    with ExitStack() as stack:
        inventory, known = stack.enter_context(nodes(folder, options.hosts, options.delay))
        key = KeyPair(folder / "id")
        launchers, lines, servers = [], [], []
        for number in range(3):
            server, command = bastion(folder, number, key, known)
            stack.enter_context(server)
            lines.append(server.known_hosts)
            servers.append(server.pid)
            launchers.append((f"b{number}", command.format(port=server.port)))
        (folder / "bastions").write_text("".join(lines), encoding="utf-8")
        config = f"Host *\n  IdentityFile {key.path}\n  UserKnownHostsFile {folder}/bastions\n"
        (folder / "bastions.conf").write_text(config, encoding="utf-8")
        home = folder / "bastion0" / "home"
        address, processes = stack.enter_context(pool(folder, home, 2))
        report = folder / "run.json"
        plain = [str(NODEVET), "check", "-i", str(inventory), "--deadline", "600"]
        plain += ["-b", str(eight_gpus.BASELINE)]
        plain += ["--format", f"json:{report}", "--parallel", str(AT_A_TIME), "--store", "none"]
        named = [f"launchers.{name} = {json.dumps(text)}" for name, text in launchers]
        ways: dict[str, tuple[str, list[int]]] = {
            "from here": ("", []),
            "one launcher": (named[0], servers[:1]),
            "three launchers": ("\n".join(named), servers),
            "a Dask pool of two workers": (f'engine = "{address}"', processes),
        }
        found: dict[str, list[Cost]] = {name: [] for name in ways}
        for turn in range(options.rounds):
            for name, (settings, elsewhere) in ways.items():
                (folder / "nodevet.toml").write_text(settings, encoding="utf-8")
                words = [] if elsewhere else ["--known-hosts", str(known)]
                one = cost([*plain, *words], report, options.hosts, elsewhere)
                print(f"round {turn + 1}: {name}: {one}", file=sys.stderr, flush=True)
                found[name].append(one)
    return {name: _median(costs) for name, costs in found.items()}


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        median(one.wall for one in costs),
        median(one.here for one in costs),
        median(one.there for one in costs),
    )


def launcher_table(found: dict[str, Cost], options: argparse.Namespace) -> str:
    least = found["one launcher"].wall
    lines = [
        "| visited | wall time | against one launcher | CPU per host here | there |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {one.wall:.1f} s | {one.wall / least:.2f} × "
            f"| {one.here / options.hosts * 1000:.1f} ms "
            f"| {one.there / options.hosts * 1000:.1f} ms |"
            for name, one in found.items()
        ),
    ]
    table = "\n".join(lines)
    return f"""{table}

{options.hosts} canned nodes with eight GPUs that answer after {options.delay:g} s, {AT_A_TIME} at a
time by each launcher or task, all on {os.cpu_count()} cores; medians, rounds: {options.rounds}.
"There" is the CPU of launchers and workers, including sshd and the scheduler.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure launchers and a Dask pool.")
    parser.add_argument("--hosts", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodevet-bench-") as folder:
        print(launcher_table(measure(Path(folder), options), options))


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        raise SystemExit(str(error)) from None
