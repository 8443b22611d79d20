"""Measures `nodevet check` beside the least and the usual that a sweep over SSH costs.

Usage: sweep.py [--hosts 100] [--rounds 3] [--ansible-hosts 20] [--minutes 25] [--only judging].
Writes docs/performance.md, section by section. All contenders run in turn, round after round, on
the same loopback hosts; the figures are medians. CPU is what the controller's processes used, user
and system together, not what the hosts used. A section that fails, or that the minutes are not
enough to begin, says so and leaves its old figures; the others go on.
"""

import argparse
import os
import platform
import resource
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median

import apart
import backtest
import eight_gpus
import history
import judging
import launchers
import probe
import rejudge
import saved_nodes
from contenders import (
    AT_A_TIME,
    REPOSITORY,
    Contender,
    ansible,
    fleet,
    floor,
    install_peers,
    nodevet,
    on_the_node,
    testinfra,
)

from nodevet.vet.use.judges import MOST, WORTH

PAGE = REPOSITORY / "docs" / "performance.md"
HASHED = 30_000  # lines of a known_hosts file that Debian's ssh has written for years
DEADLINE = 600  # seconds for one command
NODES = 1000  # saved ones that are judged
PEERS = ("ansible-core", "pytest-testinfra")
LEAST = 15  # rounds of what takes less than a second


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds."""

    cpu: float
    wall: float


def cost(contender: Contender) -> Cost:
    """Run it once. Raises BenchmarkError where it did not do its work."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        contender.command,
        env=contender.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    wall, after = time.monotonic() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    contender.prove(done)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def measure(contenders: Sequence[Contender], rounds: int) -> dict[str, Cost]:
    """The median cost of each, after one run that does not count; slow ones run once."""
    costs: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    for turn in range(rounds + 1):
        for contender in contenders:
            if contender.slow and turn != 1:  # it takes a minute and more
                continue
            found = cost(contender)
            label = f"round {turn}" if turn else "warm-up"
            print(
                f"{label}: {contender.name}: {found.cpu:.2f} s CPU, {found.wall:.2f} s", flush=True
            )
            if turn:
                costs[contender.name].append(found)
    return {
        name: Cost(median(one.cpu for one in runs), median(one.wall for one in runs))
        for name, runs in costs.items()
    }


def sweep_table(costs: dict[str, Cost], contenders: Sequence[Contender]) -> str:
    """One row for each; the first is the floor."""
    rows = [
        "| sweep | hosts | controller CPU per host | against the floor | wall time |",
        "|---|---:|---:|---:|---:|",
    ]
    least = costs[contenders[0].name].cpu / contenders[0].hosts
    for one in contenders:
        found = costs[one.name]
        each = found.cpu / one.hosts
        rows.append(
            f"| {one.name} | {one.hosts} | {each * 1000:.1f} ms | {each / least:.2f} × "
            f"| {found.wall:.2f} s |"
        )
    return "\n".join(rows)


def local_table(costs: dict[str, Cost]) -> str:
    """One row for each; the first is an empty Python."""
    rows = ["| command | CPU | against an empty Python | wall time |", "|---|---:|---:|---:|"]
    least = next(iter(costs.values())).cpu
    rows += [
        f"| {name} | {it.cpu * 1000:.0f} ms | {it.cpu / least:.1f} × | {it.wall * 1000:.0f} ms |"
        for name, it in costs.items()
    ]
    return "\n".join(rows)


def sweep(folder: Path, options: argparse.Namespace) -> str:
    with fleet(folder, options.hosts) as hosts:
        some = hosts[: options.ansible_hosts]
        contenders = [
            floor(folder, hosts),
            nodevet(folder, hosts),
            nodevet(folder, hosts, hashed=HASHED),
            *([ansible(folder, some, AT_A_TIME), testinfra(folder, some)] if peers() else ()),
        ]
        table = sweep_table(measure(contenders, options.rounds), contenders)
    return f"""{table}

{options.hosts} loopback hosts, each a real `sshd`, {AT_A_TIME} at a time; rounds after a warm-up:
{options.rounds}; the other tools ran once, without one. CPU is the CPU of the controller's
processes. The floor
connects and runs `true`. `nodevet check` also starts itself, sends its probe, reads and judges the
evidence against the baseline `generic`, and writes a report; once with a known_hosts of only these
hosts, and once with the hashed names of many others in it. The playbook
(`benchmarks/playbook.yaml`) and the test (`benchmarks/testinfra_node.py`, one command for each
source) read the same values and judge nothing. The hosts share the controller's cores,
so the wall times hold only for this machine.
"""


def when() -> str:
    """Of a section: each may be written anew by itself."""
    return f"Measured on {date.today()}, load average {os.getloadavg()[1]:.0f}."


def eight(folder: Path, options: argparse.Namespace) -> str:
    sizes = (100, options.large)
    eight_gpus.check_sizes(sizes)
    tables = []
    for size in sizes:
        below = folder / str(size)
        below.mkdir()
        rounds = options.rounds if size == 100 else min(2, options.rounds)
        tables += eight_gpus.beside_the_floor(below, size, rounds)
    return f"""{eight_gpus.eight_table(tables)}

Loopback hosts, each a real `sshd`, {AT_A_TIME} at a time, which answer with the evidence of a
simulated node with eight GPUs instead of reading their own (`benchmarks/canned_node.py`). nodevet
judges each by a baseline of its kind and writes JSON; if recorded, it also stores everything in
SQLite: a first night in a new store, and a second night in the same store, in which only readings
and clocks differ. The bytes are the growth of the store's files. Each figure is from the round with
the least CPU.
"""


def growth(folder: Path, options: argparse.Namespace) -> str:
    sizes = tuple(sorted({100, min(1000, options.most), options.most}))
    eight_gpus.check_sizes(sizes)
    rows = eight_gpus.growth(folder, sizes, options.rounds)
    return f"""{eight_gpus.growth_table(rows)}

The same, {AT_A_TIME} at a time, of a server that answers for all of them in one process
(`benchmarks/canned.py`). CPU is the least of some rounds; memory is the most that was held at once,
with shared memory counted in part. The controller judges and writes; its children speak SSH. Nodes
that think answer {eight_gpus.THINKING:g} s after the question; all others answer at once. The last
row also stores everything in a new SQLite store.
"""


def rejudged(folder: Path, options: argparse.Namespace) -> str:
    costs = rejudge.measure(folder / "history.sqlite", options.rejudged, options.rounds)
    return f"""{rejudge.rejudge_table(costs)}

A recorded night of {options.rejudged:,} nodes with eight GPUs, judged again without visiting them
(`benchmarks/rejudge.py`); msgspec decodes the same documents. The least of {options.rounds} rounds,
the most memory that all processes held together.
"""


def recalled(folder: Path, options: argparse.Namespace) -> str:
    costs = history.measure(folder / "history.sqlite", options.recalled, options.rounds)
    happened = sum(share for _, share, _ in history.CHANGES)
    return f"""{history.recall_table(costs)}

Two recorded nights of {options.recalled:,} nodes with eight GPUs, each with ids of its own
(`benchmarks/history.py`). Between them readings and clocks differ on every node, and on about
{happened:.0%} of them something else: a package, the kernel, a reboot, an error counter, a GPU, a
setting. `history diff` compares both nights, `history part` finds a GPU by the beginning of its
UUID; both start Python. msgspec decodes one night, reckoned from {history.SAMPLE} nodes. The least
of {options.rounds} rounds.
"""


def backtested(folder: Path, options: argparse.Namespace) -> str:
    costs = backtest.measure(folder, options.backtested, options.nights, min(2, options.rounds))
    return backtest.backtest_text(costs, backtest.decoding())


def launched(folder: Path, options: argparse.Namespace) -> str:
    asked = argparse.Namespace(hosts=240, rounds=2, delay=1.0)
    found = launchers.launcher_table(launchers.measure(folder, asked), asked)
    return f"""{found}
Everything ran on one machine, including the work of every launcher, so the launchers share the
waiting here, not the CPU.
"""


def probed(folder: Path, options: argparse.Namespace) -> str:
    costs = [cost for name in probe.PROFILES for cost in probe.measure(folder, LEAST, name)]
    rows = [
        f"| python3 -I -c pass | {min(cost.empty for cost in costs):.0f} ms | 1.0 × |",
        *(
            f"| the probe, {cost.gpus} GPUs, {cost.asked} | {cost.probe:.0f} ms "
            f"| {cost.probe / cost.empty:.1f} × |"
            for cost in costs
        ),
    ]
    table = "\n".join(["| on the node | CPU | against an empty Python |", "|---|---:|---:|", *rows])
    return f"""{table}

A simulated node (h100-sxm) with the simulated NVML, and a node without GPUs. CPU of the process and
its children, the least of {LEAST} rounds: the program is unpacked and reads every section, but if
nothing is recorded only those that the checks of the baseline need. A baseline asks for more than
the probe reads without one. A node with another version of Python than the controller also compiles
the program. A file of the simulated /sys costs twice as much as one of the kernel: each goes
through FUSE.
"""


def judged(folder: Path, options: argparse.Namespace) -> str:
    saved, project = saved_nodes.make(folder / "nodes", NODES)
    found = judging.measure(saved, project)
    rows = [
        ("decoding what judging reads", found.decoding),
        ("judging: every check", found.checks),
        ("`check --evidence`, a node: decoding, choosing its baseline, judging", found.whole),
    ]
    lines = [
        f"| {name} | {seconds / found.nodes * 1000:.2f} ms | {seconds / found.decoding:.1f} × |"
        for name, seconds in rows
    ]
    table = "\n".join(["| of one node | CPU | against decoding |", "|---|---:|---:|", *lines])
    kinds = f"{saved_nodes.booted()} simulated nodes of every GPU profile"
    return f"""{table}

{found.nodes:,} saved nodes, no two alike: {kinds}, healthy and with faults, were booted and read,
and each stands for several with other names, serials and counters; a node has
{found.size / found.nodes / 1000:.0f} kB of evidence. nodevet judges each by the shipped baseline
that fits it, and by every other check that needs no value of the site:
{found.findings / found.nodes:.0f} findings a node. The figures are means of one pass.
"""


def local(folder: Path, options: argparse.Namespace) -> str:
    table = local_table(measure(on_the_node(folder), max(options.rounds, LEAST)))
    return f"""{table}

CPU is user and system time of the whole process and its children; nodevet is an installed wheel,
not this tree. Without `-b`, nodevet chooses among all shipped baselines, so the probe reads every
section; it does so too if the run is recorded. `--max-age` reuses a younger verdict: see
[local.md](local.md#ask-every-minute).
"""


def judged_apart(folder: Path, options: argparse.Namespace) -> str:
    return f"""{apart.table(apart.rows(folder, options.apart))}

{options.apart} nodes with eight GPUs, whose answers are there at once (`benchmarks/apart.py`): no
SSH, so all that is left are decoding, judging, recording and reporting. From
{WORTH} hosts and three cores on, nodevet judges in half as many processes as there are cores, up to
{MOST}; with one or two cores, the process that visits judges as well. This process is the limit of
a large fleet: a host costs it the first column, whatever the number of cores. `check --evidence`
of as many saved hosts judges in as many processes as there are cores.
"""


Section = Callable[[Path, argparse.Namespace], str]
SECTIONS: Mapping[str, tuple[str, Section, float]] = {  # with the minutes that it takes
    "eight": ("A sweep over nodes with eight GPUs", eight, 5),
    "probe": ("The probe", probed, 1),
    "local": ("On the node itself", local, 1),
    "growth": ("As a fleet grows", growth, 8),
    "rejudge": ("Judging a recorded night again", rejudged, 2),
    "recall": ("Asking the history", recalled, 2),
    "backtest": ("Many nights under another baseline", backtested, 2),
    "sweep": ("A sweep", sweep, 4),
    "apart": ("Judged in other processes", judged_apart, 1),
    "launchers": ("Launchers", launched, 2),
    "judging": ("Judging what was saved", judged, 4),
}


@cache
def peers() -> str:
    """The versions of those that nodevet is measured beside; empty if they cannot be installed."""
    try:
        bench = install_peers() / "bin" / "python"
        ask = f"from importlib.metadata import version; print(*map(version, {PEERS}))"
        run = subprocess.run([bench, "-c", ask], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"ansible-core and pytest-testinfra are left out: {error}", flush=True)
        return ""
    found = zip(PEERS, run.stdout.split(), strict=True)
    return "".join(f", {name} {number}" for name, number in found)


def head() -> str:
    page = f"""# What nodevet costs

Written by `make bench` on {os.cpu_count()} cores ({platform.machine()}), Python
{platform.python_version()}, asyncssh {version("asyncssh")}{peers()}. The
contenders took turns; the figures are medians unless a section says otherwise. CPU is user and
system.
Absolute times vary with the machine; read the ratios. Runs are not recorded (`--store none`) unless
a section says so. Each section says when it was measured.
"""
    return f"{filled(page)}\n"


def replaced(page: str, title: str, text: str) -> str:
    """The page with another text in a section; at its end if it has none of this title."""
    before, _, rest = page.partition(f"\n## {title}\n")
    after = rest.partition("\n## ")
    return f"{before}\n## {title}\n\n{filled(text)}\n" + "".join(after[1:])


def filled(text: str) -> str:
    """With paragraphs of 100 columns; tables and headings stay."""
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if part[0] in "|#" else textwrap.fill(part, 100) for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure nodevet; write docs/performance.md.")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--ansible-hosts", type=int, default=AT_A_TIME, help="it takes a second for each, and more"
    )
    parser.add_argument("--large", type=int, default=600, help="hosts beside the floor")
    parser.add_argument("--most", type=int, default=10_000, help="hosts of a large site")
    parser.add_argument("--rejudged", type=int, default=1000, help="hosts that are judged again")
    parser.add_argument("--recalled", type=int, default=1000, help="hosts of the history")
    parser.add_argument("--backtested", type=int, default=16, help="hosts of many nights")
    parser.add_argument("--apart", type=int, default=400, help="hosts that others judge")
    parser.add_argument("--nights", type=int, default=40, help="that are judged again")
    parser.add_argument(
        "--minutes", type=float, default=25, help="no section is begun that would not end by then"
    )
    parser.add_argument("--only", choices=SECTIONS, help="write only this section, again")
    parser.add_argument("--page", type=Path, default=PAGE, help="written instead, if it is there")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    if options.only is None:
        page = head() + page[page.index("\n## ") :]
    end = time.monotonic() + options.minutes * 60
    failed = []
    for name, (title, section, minutes) in SECTIONS.items():
        if options.only not in (None, name):
            continue
        began = time.monotonic()
        why = "" if options.only or began + minutes * 60 < end else "there was no time left for it"
        try:
            if not why:
                with tempfile.TemporaryDirectory(prefix="nodevet-bench-") as folder:
                    page = replaced(page, title, f"{section(Path(folder), options)}\n{when()}")
                options.page.write_text(page, encoding="utf-8")
        except Exception as error:  # the others go on
            why = f"{type(error).__name__}: {error}"
        took = (time.monotonic() - began) / 60
        failed += [title] if why else []
        print(f"\n{title}: {why or 'written'} ({took:.1f} min)\n", flush=True)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
