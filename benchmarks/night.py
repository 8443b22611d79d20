"""Measures a night in which nothing changed: what recording it takes, and what the store keeps."""

import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from eight_gpus import BASELINE, evidence
from rejudge import five_nights

from nodevet.fleet import Visit
from nodevet.history.model import RecordedRun, RunState
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.run.context import open_context
from nodevet.run.vet import judge_visit
from nodevet.store import open_store

OWN = re.compile(r'(GPU-|"(?:machine_id|boot_id)": ")[0-9a-f]{8}')
READING = re.compile(
    r'("(?:power_draw|temperature_gpu|temperature_memory|clock_graphics|clock_sm|uptime_s|clock_s'
    r'|asked_s|available_kb|memory_used|seconds)\w*": )(\d+)(\.\d+)?'
)


@dataclass(frozen=True)
class NightCost:
    """CPU and wall time in seconds, bytes that the store grew by."""

    hosts: int
    cpu: float
    wall: float
    grown: int


def nights(folder: Path, hosts: int, count: int = 3) -> list[NightCost]:
    """As many nights of these hosts; between two of them only readings and clocks differ."""
    context = open_context(folder, (str(BASELINE),))
    text = evidence(folder).read_text(encoding="utf-8")
    file = folder / "history.sqlite"
    found = []
    for night in range(count):
        before = _size(file)
        cpu = wall = 0.0
        run = RecordedRun(
            id=five_nights.run_id(night + 1),
            series="bench",
            started=five_nights.started(night + 1).isoformat(),
            seconds=None,
            state=RunState.RUNNING,
            nodevet="bench",
            fail_on=Severity.WARNING,
            hosts=hosts,
            visited=0,
            outcomes={},
            baselines={},
        )
        at = five_nights.started(night + 1).timestamp()
        with open_store(f"sqlite:///{file}") as store:
            recorder = store.begin(run)
            for number, document in enumerate(_documents(text, hosts, night)):
                name = f"node{number:05d}"
                visit = Visit(name, Status.VETTED, "", document, 1.5, at + number / 100)
                report: HostReport = judge_visit(
                    visit, Host(name=name, expect_hostname=False), context
                ).report
                began, clock = time.process_time(), time.monotonic()
                recorder.take(report, document)
                cpu += time.process_time() - began
                wall += time.monotonic() - clock
            began, clock = time.process_time(), time.monotonic()
            recorder.finish(msgspec.structs.replace(run, state=RunState.COMPLETE, seconds=1.0))
            cpu += time.process_time() - began
            wall += time.monotonic() - clock
            if recorder.broken:
                raise recorder.broken
        found.append(NightCost(hosts, cpu, wall, _size(file) - before))
        print(f"night {night + 1}: {found[-1]}", flush=True)
    return found


def _documents(text: str, hosts: int, night: int) -> Iterator[bytes]:
    draw = random.Random(night)
    for number in range(hosts):
        own = OWN.sub(rf"\g<1>{number:08x}", text)
        yield READING.sub(lambda found: _other(found, draw), own).encode()


def _other(found: "re.Match[str]", draw: random.Random) -> str:
    """A reading of another night: some hundredths more or less."""
    return f"{found[1]}{round(int(found[2]) * draw.uniform(0.97, 1.03))}{found[3] or ''}"


def _size(file: Path) -> int:
    """With what has not been written back yet."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


def night_table(rows: list[NightCost]) -> str:
    lines = ["| night | CPU per host | wall time | bytes per host |", "|---|---:|---:|---:|"]
    for number, row in enumerate(rows, 1):
        what = "the first" if number == 1 else f"the {['second', 'third'][number - 2]}, unchanged"
        lines.append(
            f"| {what} | {row.cpu / row.hosts * 1000:.2f} ms | {row.wall:.1f} s "
            f"| {row.grown / row.hosts:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps([each.__dict__ for each in nights(Path(temporary), int(sys.argv[1]))]))
