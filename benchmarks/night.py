"""Measures a night in which nothing changed: what recording it takes, and what the store keeps."""

import json
import random
import re
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from eight_gpus import BASELINE, evidence
from rejudge import begun_run, five_nights

from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Status
from nodevet.store import documents, open_store
from nodevet.store.records.model import RunState
from nodevet.vet.use.context import open_context
from nodevet.vet.use.vet import judge_visit

OWN = re.compile(rb'(GPU-|"(?:machine_id|boot_id)":")[0-9a-f]{8}')
STATES = frozenset({"schema", "link_gts", "pcie_generation", "pstate", "event_reasons"})
CLOCKS = frozenset({"clock_s", "asked_s"})


@dataclass(frozen=True)
class NightCost:
    """CPU and wall time in seconds, bytes that the store grew by, the most that was held in MB."""

    hosts: int
    cpu: float
    wall: float
    grown: int
    held: float


def nights(folder: Path, hosts: int, count: int = 3) -> list[NightCost]:
    """As many nights of these hosts; between two of them only readings and clocks differ."""
    context = open_context(folder, (str(BASELINE),))
    text = evidence(folder).read_bytes()
    file = folder / "history.sqlite"
    found = []
    for night in range(count):
        before = _size(file)
        cpu = wall = 0.0
        run = begun_run(night + 1, hosts)
        at = five_nights.started(night + 1).timestamp()
        with open_store(f"sqlite:///{file}") as store:
            recorder = store.begin(run)
            recorder.expect(f"node{number:05d}" for number in range(hosts))
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
        found.append(NightCost(hosts, cpu, wall, _size(file) - before, _most_held()))
        print(f"night {night + 1}: {found[-1]}", flush=True)
    return found


def _documents(text: bytes, hosts: int, night: int) -> Iterator[bytes]:
    """What each host says in a night in which nothing happened: every amount that the store keeps
    as a reading has another value, some hundredths less: no more is free than there is."""
    draw = random.Random(night)
    found = documents.split_document(text)
    if found is None:
        raise SystemExit("the node's evidence is not as a probe sends it")
    rest = json.loads(found.volatile)
    for number in range(hosts):
        own = rb"\g<1>%08x" % number
        steady = {name: OWN.sub(own, section) for name, section in found.steady.items()}
        later = night * 86400 + number / 100
        readings = msgspec.json.encode(other_readings(rest, draw, later))
        yield documents.join_document(list(steady), steady, readings)


def other_readings(value: Any, draw: random.Random, later: float) -> Any:
    if isinstance(value, dict):
        return {
            name: each + later
            if name in CLOCKS
            else each
            if name in STATES
            else other_readings(each, draw, later)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [other_readings(each, draw, later) for each in value]
    if isinstance(value, (int, float)):
        return round(value * draw.uniform(0.94, 1), None if isinstance(value, int) else 4)
    return value


def _size(file: Path) -> int:
    """With what has not been written back yet."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


def _most_held() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
