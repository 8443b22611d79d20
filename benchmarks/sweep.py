"""Measures `nodevet check` beside the least and the usual that a sweep over SSH costs.

Usage: sweep.py [--hosts 100] [--rounds 3] [--ansible-hosts 100]. Writes docs/performance.md. All
contenders run in turn, round after round, on the same loopback hosts; the
figures are medians. CPU is what the controller's processes used, user and
system together, not what the hosts used.
"""

import argparse
import os
import platform
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from contenders import (
    AT_A_TIME,
    REPOSITORY,
    BenchmarkError,
    Contender,
    ansible,
    fleet,
    floor,
    install_ansible,
    nodevet,
    on_the_node,
)

PAGE = REPOSITORY / "docs" / "performance.md"
HASHED = 30_000  # lines of a known_hosts file that Debian's ssh has written for years
DEADLINE = 1800  # seconds for one command
LOCAL = "## On the node itself"
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
    """The median cost of each, after one run that does not count."""
    costs: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    for turn in range(rounds + 1):
        for contender in contenders:
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


def page(sweeps: str, here: str, hosts: int, rounds: int) -> str:
    bench = install_ansible() / "bin" / "python"
    ask = "from importlib.metadata import version; print(version('ansible-core'))"
    run = subprocess.run([bench, "-c", ask], capture_output=True, text=True, check=True)
    return f"""# What a sweep costs

Written by `make bench`: {hosts} loopback hosts, each a real `sshd`, on {os.cpu_count()} cores
({platform.machine()}), Python {platform.python_version()}, asyncssh {version("asyncssh")},
ansible-core {run.stdout.strip()}. The contenders took turns, rounds after a warm-up: {rounds}; the
figures are medians. Each visits {AT_A_TIME} hosts at a time. CPU is that of the controller's
processes, user and system. The hosts share its cores, so wall times are those of this machine
alone. Absolute times vary with the machine; read the ratios.

## A sweep

{sweeps}

The floor connects and runs `true`. `nodevet check` also starts itself, sends its probe, reads and
judges the evidence against the baseline `generic`, and writes a report; once with a known_hosts
of the hosts alone, and once with the hashed names of many others in it. The playbook
(`benchmarks/playbook.yaml`) reads the same values and judges nothing.

{on_this_machine(here)}"""


def on_this_machine(here: str) -> str:
    return f"""{LOCAL}

{here}

CPU is that of the whole process and its children, user and system; nodevet is a wheel that was
installed, not this tree. `--max-age` gives a verdict again that is younger: see
[local.md](local.md#ask-every-minute).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure nodevet; write docs/performance.md.")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ansible-hosts", type=int, help="fewer, where the machine is slow")
    parser.add_argument("--local", action="store_true", help="only what runs on the node itself")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodevet-bench-") as name:
        folder = Path(name)
        if options.local:
            here = local_table(measure(on_the_node(folder), max(options.rounds, LEAST)))
            before = PAGE.read_text(encoding="utf-8").partition(LOCAL)[0]
            PAGE.write_text(before + on_this_machine(here), encoding="utf-8")
            print(f"\n{here}\n\nwritten to {PAGE.relative_to(REPOSITORY)}")
            return
        with fleet(folder, options.hosts) as hosts:
            some = hosts[: options.ansible_hosts or options.hosts]
            contenders = [
                floor(folder, hosts),
                nodevet(folder, hosts),
                nodevet(folder, hosts, hashed=HASHED),
                ansible(folder, some, AT_A_TIME),
            ]
            sweeps = sweep_table(measure(contenders, options.rounds), contenders)
        here = local_table(measure(on_the_node(folder), max(options.rounds, LEAST)))
    text = page(sweeps, here, options.hosts, options.rounds)
    PAGE.write_text(text, encoding="utf-8")
    print(f"\n{sweeps}\n\n{here}\n\nwritten to {PAGE.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        raise SystemExit(str(error)) from None
