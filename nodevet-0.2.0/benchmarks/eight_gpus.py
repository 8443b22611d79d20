"""Measures a whole sweep over nodes with eight GPUs: its CPU beside the floor, how that grows with
the number of hosts, and what it holds.

A node answers with evidence that was read before (canned_node.py below a real sshd, canned.py as a
server that costs less), so that thousands of them have room on one machine.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contenders import FLOOR, HERE, REPOSITORY, BenchmarkError, Contender, fleet, floor, nodevet
from night import Nodes
from rejudge import held

from nodevet_sim.sshd import make_key

sys.path.insert(0, str(REPOSITORY / "tests" / "rigs"))

import five_nights

LARGE = 1000  # hosts, from which on a round is enough
THINKING = 5.0  # seconds
BASELINE = five_nights.READ / "site-h100.yaml"


@dataclass(frozen=True)
class SweepCost:
    """Of one sweep: CPU and wall time in seconds, the most that was held in MB."""

    hosts: int
    cpu: float
    wall: float
    controller: float = 0.0
    children: float = 0.0
    grown: int = 0  # bytes by which the store grew

    @property
    def each(self) -> float:
        """Milliseconds of CPU for a host."""
        return self.cpu / self.hosts * 1000


def evidence(folder: Path) -> Path:
    """What a node with eight GPUs said."""
    return _evidence(folder, (", ", ": "))


def answer(folder: Path) -> Path:
    """The same, as the probe writes it."""
    return _evidence(folder, (",", ":"))


def _evidence(folder: Path, separators: tuple[str, str]) -> Path:
    path = folder / "evidence.json"
    document = five_nights.document(five_nights.H100[0], 1)
    path.write_text(json.dumps(document, separators=separators), encoding="utf-8")
    return path


def node_command(answers: Path) -> str:
    """For sshd's ForceCommand."""
    return f"{sys.executable} -I -S {HERE / 'canned_node.py'} {answers}"


def write_answers(folder: Path, nodes: Nodes, size: int, night: int) -> None:
    """What canned_node.py sends for each node in this night."""
    folder.mkdir(exist_ok=True)
    for number in range(size):
        packed = zlib.compress(nodes.answer(number, night), 1)
        (folder / address(number)).write_bytes(packed)


def whole_vet(folder: Path, hosts: list[dict[str, Any]], *more: str) -> Contender:
    """`nodevet check` of nodes that answer as those of five_nights do."""
    found = nodevet(folder, hosts)
    words = [str(BASELINE) if word == "generic" else word for word in found.command]
    command = [*words, "--no-expect-hostname", *more]
    return Contender(found.name, found.hosts, command, found.prove)


@contextmanager
def canned(folder: Path, size: int, seconds: float = 0.0) -> Iterator[list[dict[str, Any]]]:
    """That many hosts of one process, each at an address of its own, which think for `seconds`."""
    key, host_key = make_key(folder / "id"), make_key(folder / "host_key")
    words = [sys.executable, str(HERE / "canned.py"), str(size), str(answer(folder))]
    words += [f"{key.path}.pub", str(host_key.path), str(seconds)]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline() if server.stdout else 0)
        known_hosts = folder / "known_hosts"
        kind, blob = host_key.public.split()[:2]
        known_hosts.write_text(f"[127.9.*]:{port} {kind} {blob}\n", encoding="ascii")
        rest = {"port": port, "key": str(key.path), "known_hosts": str(known_hosts)}
        yield [
            {"name": f"node{number:05d}", "address": address(number), **rest}
            for number in range(size)
        ]
    finally:
        if server.stdin:
            server.stdin.close()
        server.wait(30)


def address(number: int) -> str:
    """As canned.py has it."""
    return f"127.9.{number // 250}.{number % 250 + 1}"


def measured(contender: Contender) -> SweepCost:
    """Run it once. Raises BenchmarkError where it did not do its work."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    running = subprocess.Popen(
        contender.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=contender.env or os.environ,
    )
    most = [0.0, 0.0]
    watching = threading.Thread(target=_watch, args=(running, most), daemon=True)
    watching.start()
    said, wrong = running.communicate()
    wall, after = time.monotonic() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    watching.join()
    contender.prove(subprocess.CompletedProcess(contender.command, running.returncode, said, wrong))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{contender.name}, {contender.hosts}: {cpu:.1f} s CPU, {wall:.1f} s", flush=True)
    return SweepCost(contender.hosts, cpu, wall, *most)


def _watch(running: "subprocess.Popen[str]", most: list[float]) -> None:
    while running.poll() is None:
        below = sum(map(held, children(running.pid)))
        most[:] = max(most[0], held(running.pid)), max(most[1], below)
        time.sleep(0.5)


def children(pid: int) -> list[int]:
    """Those that every thread of a process started."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in file.read_text().split()]
        except OSError:  # it has ended
            continue
    return found


def beside_the_floor(folder: Path, size: int, rounds: int) -> list[tuple[str, SweepCost]]:
    """The floor, the whole vet, and two nights that are recorded, in turn; of each the round with
    the least CPU."""
    answers = folder / "answers"
    nodes = Nodes(answer(folder).read_bytes())
    with fleet(folder, size, command=node_command(answers)) as hosts:
        vet = whole_vet(folder, hosts)
        found = []
        for _ in range(rounds):
            write_answers(answers, nodes, size, night=1)
            plain = [measured(one) for one in (floor(folder, hosts), vet)]
            found.append([*plain, *nights(folder, vet, answers, nodes)])
    least = [min(runs, key=lambda run: run.cpu) for runs in zip(*found, strict=True)]
    names = (FLOOR, vet.name, f"{vet.name}, recorded, first night", "the same, nothing changed")
    return list(zip(names, least, strict=True))


def nights(folder: Path, vet: Contender, answers: Path, nodes: Nodes) -> list[SweepCost]:
    """Two nights in a new store; in the second one only readings and clocks differ. Raises
    BenchmarkError if nodevet does not see the second night as unchanged."""
    for file in folder.glob("history.sqlite*"):
        file.unlink()
    costs, size = [], 0
    for night in (1, 2):
        write_answers(answers, nodes, vet.hosts, night)
        cost = measured(recorded(vet, f"sqlite:///{folder}/history.sqlite"))
        grown, size = -size, sum(file.stat().st_size for file in folder.glob("history.sqlite*"))
        costs.append(replace(cost, grown=grown + size))
    news = json.loads((folder / "run-0.json").read_bytes())["news"]
    begun = any(trouble.get("new") for trouble in news.get("standing", ()))
    if not news["since"] or begun or news.keys() & {"ended", "appeared", "vanished", "replaced"}:
        raise BenchmarkError(f"not an unchanged night: {str(news)[:500]}")
    return costs


def growth(folder: Path, sizes: tuple[int, ...], rounds: int) -> list[tuple[str, SweepCost]]:
    """Of each size the round with the least CPU; of the smallest one also with nodes that think,
    of the largest one also recorded."""
    found = []
    for size in sizes:
        for seconds in (0.0, THINKING) if size == min(sizes) else (0.0,):
            below = folder / f"{size}-{seconds:g}"
            below.mkdir()
            name = f"{size:,}, thinking {seconds:g} s" if seconds else f"{size:,}"
            with canned(below, size, seconds) as hosts:
                vet = whole_vet(below, hosts)
                some = [measured(vet) for _ in range(rounds if size < LARGE else 1)]
                found.append((name, min(some, key=lambda run: run.cpu)))
                if size == max(sizes) and not seconds:
                    store = f"sqlite:///{below}/history.sqlite"
                    found.append((f"{size:,}, recorded", measured(recorded(vet, store))))
    return found


def recorded(vet: Contender, store: str) -> Contender:
    """The same, kept in a store."""
    command = [store if word == "none" else word for word in vet.command]
    return Contender(f"{vet.name}, recorded", vet.hosts, command, vet.prove)


def formats(folder: Path, size: int, names: tuple[str, ...]) -> SweepCost:
    """A sweep that writes all of these."""
    with canned(folder, size) as hosts:
        more = [word for name in names for word in ("--format", f"{name}:{folder}/report.{name}")]
        return measured(whole_vet(folder, hosts, *more))


def check_sizes(sizes: tuple[int, ...]) -> None:
    """Raises BenchmarkError if this machine has too few open files for the largest."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < max(sizes) + 500:
        raise BenchmarkError(f"{max(sizes)} hosts need more than {most} open files: ulimit -n")


def eight_table(rows: list[tuple[str, SweepCost]]) -> str:
    floors = {run.hosts: run.each for name, run in rows if name == FLOOR}
    lines = [
        "| sweep | hosts | controller CPU per host | against the floor | wall time "
        "| bytes stored per host |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, run in rows:
        stored = f"{run.grown / run.hosts:,.0f}" if run.grown else ""
        lines.append(
            f"| {name} | {run.hosts:,} | {run.each:.1f} ms | {run.each / floors[run.hosts]:.2f} × "
            f"| {run.wall:.0f} s | {stored} |"
        )
    return "\n".join(lines)


def growth_table(rows: list[tuple[str, SweepCost]]) -> str:
    least = rows[0][1].each
    lines = [
        "| hosts | controller CPU per host | against the fewest | controller held | its children |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {run.each:.1f} ms | {run.each / least:.2f} × "
            f"| {run.controller:.0f} MB | {run.children:.0f} MB |"
            for name, run in rows
        ),
    ]
    return "\n".join(lines)
