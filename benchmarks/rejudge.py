"""Measures judging a recorded night again (`check --from-run`) beside decoding the evidence.

Usage: rejudge.py [--hosts 10000] [--store FILE]. Records that many nodes with eight GPUs each in a
new SQLite store, kept if FILE is named; prints the ratio of both, in time and in CPU time, and the
most memory that all processes of nodevet held together.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "rigs"))

import five_nights  # noqa: E402

from nodevet.model import HostReport, Severity, Status  # noqa: E402
from nodevet.store import open_store  # noqa: E402
from nodevet.store.records.model import RecordedRun, RunState  # noqa: E402

OWN = re.compile(
    r"GPU-[0-9a-f]{8}|\"(?:machine_id|boot_id|serial)\":\"[0-9A-Fa-f]{8}"
    r"|\"(?:node_guid|gid)\":\"(?:[0-9a-f]{4}:)*[0-9a-f]{4}"
)
"""What no two nodes have in common: the ids of machine, GPUs, drives and network ports."""
ROUNDS = int(os.environ.get("ROUNDS", "3"))


def documents(hosts: int) -> Iterator[tuple[str, bytes]]:
    """Evidence of as many nodes: those of a night, with ids of their own."""
    read = [
        json.dumps(five_nights.document(host, 1), separators=(",", ":"))
        for host in five_nights.H100
    ]
    for number in range(hosts):
        name = f"node{number:05d}"
        like = number % len(read)
        text = OWN.sub(partial(_own, f"{number:08x}"), read[like])
        yield name, text.replace(f'"{five_nights.H100[like]}"', f'"{name}"').encode()


def _own(digits: str, found: "re.Match[str]") -> str:
    if "guid" in found[0] or "gid" in found[0]:
        return f"{found[0][: -len('1234:5678')]}{digits[:4]}:{digits[4:]}"
    return found[0][: -len(digits)] + digits


def begun_run(night: int, hosts: int) -> RecordedRun:
    """A run of so many hosts that has just begun."""
    return RecordedRun(
        id=five_nights.run_id(night),
        series="bench",
        started=five_nights.start_time(night).isoformat(),
        seconds=None,
        state=RunState.RUNNING,
        nodevet="bench",
        fail_on=Severity.WARNING,
        hosts=hosts,
        visited=0,
        outcomes={},
        baselines={},
    )


def record(url: str, hosts: int) -> None:
    run = begun_run(1, hosts)
    with open_store(url) as store:
        recorder = store.begin(run)
        for name, text in documents(hosts):
            recorder.take(
                HostReport(
                    host=name,
                    status=Status.VETTED,
                    baseline="site-h100",
                    arrived=five_nights.start_time(1).isoformat(),
                ),
                text,
            )
        recorder.finish(msgspec.structs.replace(run, state=RunState.COMPLETE, seconds=1.0))
        if recorder.broken:
            raise recorder.broken


def decoding(hosts: int) -> tuple[float, float]:
    """Seconds, and CPU seconds, that msgspec takes for all of them."""
    wall = cpu = 0.0
    decode = msgspec.json.Decoder().decode
    for _, text in documents(hosts):
        began, clock = time.thread_time(), time.perf_counter()
        decode(text)
        cpu += time.thread_time() - began
        wall += time.perf_counter() - clock
    return wall, cpu


def judging(url: str, hosts: int) -> tuple[float, float, float]:
    """Seconds, CPU seconds and MB of `nodevet check --from-run`."""
    baseline = five_nights.READ / "site-h100.yaml"
    words = [sys.executable, "-m", "nodevet", "check", "--from-run", "last", "--store", url]
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = subprocess.Popen(
        [*words, "-b", str(baseline), "--max-age", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    most = [0.0]
    watching = threading.Thread(target=_watch, args=(running, most), daemon=True)
    watching.start()
    said, wrong = running.communicate()
    wall = time.perf_counter() - clock
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    watching.join()
    if f"{hosts:,} hosts" not in said:
        raise SystemExit(f"it did not judge {hosts} hosts: {said[-400:]}{wrong[-400:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most[0]


def _watch(running: "subprocess.Popen[str]", most: list[float]) -> None:
    while running.poll() is None:
        most[0] = max(most[0], sum(map(held, [running.pid, *_children(running.pid)])))
        time.sleep(0.1)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split()]
    return []


def held(pid: int) -> float:
    """MB of a process; what it shares with others counts in part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


@dataclass(frozen=True)
class RejudgeCost:
    """Of all hosts: wall time and CPU in seconds, and the most that was held in MB."""

    name: str
    wall: float
    cpu: float
    held: float = 0.0


def measure(file: Path, hosts: int, rounds: int) -> tuple[RejudgeCost, RejudgeCost]:
    """Decoding and judging, in turn, so that both meet the same machine; the least of each."""
    url = f"sqlite:///{file}"
    if not file.exists():
        record(url, hosts)
    decoded, judged = [], []
    for _ in range(rounds):
        decoded.append(decoding(hosts))
        judged.append(judging(url, hosts))
    walls, cpus = zip(*decoded, strict=True)
    took, used, most = zip(*judged, strict=True)
    return (
        RejudgeCost("decoding, in one process", min(walls), min(cpus)),
        RejudgeCost("`nodevet check --from-run`", min(took), min(used), max(most)),
    )


def rejudge_table(costs: tuple[RejudgeCost, RejudgeCost]) -> str:
    least = costs[0]
    lines = [
        "| of all | wall time | against decoding | CPU | against decoding | held |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {it.name} | {it.wall:.2f} s | {it.wall / least.wall:.1f} × | {it.cpu:.2f} s "
            f"| {it.cpu / least.cpu:.1f} × | {f'{it.held:.0f} MB' if it.held else ''} |"
            for it in costs
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = (options.store or Path(folder) / "history.sqlite").absolute()
        print(rejudge_table(measure(file, options.hosts, ROUNDS)))


if __name__ == "__main__":
    main()
