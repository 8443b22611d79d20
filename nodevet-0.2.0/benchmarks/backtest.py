"""Measures `nodevet history backtest`: many nights of some hosts under another baseline, beside
decoding the evidence.

Usage: backtest.py [--hosts 16] [--nights 40]. Records these nights of half of the hosts and of
all of them, each in a new SQLite store; the figure for 10,000 hosts and 90 nights is reckoned.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import history
import msgspec

RULE = "expect:\n  ecc_errors: {aggregate_corrected: 3}"
HOSTS, NIGHTS = 10_000, 90  # that are reckoned
DECODED = 200  # documents that measure the floor
CORES = 2


@dataclass(frozen=True)
class BacktestCost:
    """Of all visits: wall time and CPU in seconds."""

    hosts: int
    nights: int
    wall: float
    cpu: float

    @property
    def visit(self) -> float:
        """CPU of one visit in milliseconds."""
        return self.cpu / (self.hosts * self.nights) * 1000


def decoding() -> float:
    """CPU milliseconds that msgspec takes for one visit, the least of three rounds."""
    decode = msgspec.json.Decoder().decode
    texts = [text for _, text in history.Site(DECODED).night(2) if text]
    rounds = []
    for _ in range(3):
        began = time.process_time()
        for text in texts:
            decode(text)
        rounds.append(time.process_time() - began)
    return min(rounds) / len(texts) * 1000


def measure(folder: Path, hosts: int, nights: int, rounds: int) -> list[BacktestCost]:
    """Half of the hosts, then all of them; the round with the least CPU."""
    rule = folder / "tomorrow.yaml"
    rule.write_text(history.BASELINE.read_text().replace("expect:", RULE))
    costs = []
    for number in (hosts // 2, hosts):
        url = f"sqlite:///{folder / f'{number}.sqlite'}"
        history.record(url, number, nights)
        taken = [_run(rule, url) for _ in range(rounds)]
        wall, cpu = min(taken, key=lambda pair: pair[1])
        costs.append(BacktestCost(number, nights, wall, cpu))
    return costs


def _run(rule: Path, url: str) -> tuple[float, float]:
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = ("history", "backtest", "-b", rule, "--store", url, "--nights", str(NIGHTS))
    command = [sys.executable, "-m", "nodevet", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - clock, cpu


def backtest_table(costs: Sequence[BacktestCost], floor: float) -> str:
    lines = [
        "| hosts × nights | wall time | CPU | CPU of one visit | against decoding |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {it.hosts:,} × {it.nights} | {it.wall:.1f} s | {it.cpu:.1f} s "
            f"| {it.visit:.2f} ms | {it.visit / floor:.1f} × |"
            for it in costs
        ),
    ]
    return "\n".join(lines)


def reckoned_minutes(costs: Sequence[BacktestCost]) -> float:
    """What all hosts and nights would take: each further visit costs what it did between the two
    sizes, so that the start of the command counts once."""
    some, all_ = costs
    visits = (all_.hosts - some.hosts) * all_.nights
    return (all_.cpu - some.cpu) / visits * HOSTS * NIGHTS / CORES / 60


def backtest_text(costs: Sequence[BacktestCost], floor: float) -> str:
    return f"""{backtest_table(costs, floor)}

Nodes with eight GPUs and their nights, as recorded above, under a baseline with one more rule
(`benchmarks/backtest.py`); the CPU of one visit holds its share of the start of the command.
msgspec decodes one visit in {floor:.2f} ms. {HOSTS:,} hosts and {NIGHTS} nights are reckoned from
both rows, not measured: {reckoned_minutes(costs):.0f} min on {CORES} cores.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--nights", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = int(os.environ.get("ROUNDS", "2"))
        costs = measure(Path(folder), options.hosts, options.nights, rounds)
        print(backtest_text(costs, decoding()), end="")


if __name__ == "__main__":
    main()
