"""Measures what the history answers of a large site: the differences of two nights, and a part by
the beginning of its id.

Usage: history.py STORE [--hosts 10000] [--nights 2]. Records that many nodes and nights in a new
SQLite store, or measures a store that is there.
"""

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from night import other_readings
from rejudge import OWN, begun_run, five_nights

from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Status
from nodevet.store import documents, open_store
from nodevet.store.records.model import RunState
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.judge_visit import judge_visit

BASELINE = five_nights.READ / "site-h100.yaml"
SAMPLE = 500  # hosts whose evidence is decoded
UNREACHABLE = 0.002  # of all hosts, each night


def _numbered(pattern: bytes) -> Callable[[bytes, int], bytes]:
    """Count up the first number that a pattern finds."""

    found = re.compile(pattern)

    def change(text: bytes, times: int) -> bytes:
        return found.sub(lambda it: it[1] + b"%d" % (int(it[2]) + times), text, count=1)

    return change


def _switched(one: bytes, other: bytes) -> Callable[[bytes, int], bytes]:
    """Change a value, and back the next time."""
    return lambda text, times: text.replace(one, other, 1) if times % 2 else text


CHANGES: Sequence[tuple[str, float, Callable[[bytes, int], bytes]]] = (
    ("installed", 0.01, _numbered(rb'("name":"tuned","architecture":"amd64","version":"2\.)(\d+)')),
    ("host", 0.01, _numbered(rb'("kernel":"[\d.]+-)(\d+)')),
    ("host", 0.02, _numbered(rb'("boot_id":"[0-9a-f]{8}-)(\d+)')),
    ("gpu", 0.02, _numbered(rb'("aggregate_corrected":)(\d+)')),
    ("gpu", 0.005, _numbered(rb'("pcie_replay_counter":)(\d+)')),
    ("gpu", 0.002, _numbered(rb'("uuid":"GPU-[0-9a-f]{8}-)(\d)')),
    ("gpu", 0.005, _switched(b'"persistence_mode":true', b'"persistence_mode":false')),
    ("gpu", 0.005, _switched(b'"power_limit_mw":700000', b'"power_limit_mw":600000')),
    ("infiniband", 0.01, _switched(b'"state":"ACTIVE"', b'"state":"DOWN"')),
    ("sysctl", 0.002, _switched(b'"value":"0"', b'"value":"1"')),
    ("memory", 0.002, _numbered(rb'("total_kb":)(\d+)')),
)
"""By section: on how many hosts something happens to it between two nights, and what."""


class Site:
    """Nodes with eight GPUs, each with ids of its own. From night to night readings and clocks
    differ; on some hosts something happens."""

    def __init__(self, hosts: int) -> None:
        self.names = [f"node{number:05d}" for number in range(hosts)]
        self._happened = [Counter[int]() for _ in self.names]
        text = json.dumps(five_nights.document(five_nights.H100[0], 1), separators=(",", ":"))
        split = documents.split_document(text.encode())
        if split is None:
            raise SystemExit("the node's evidence is not as a probe sends it")
        self._steady, self._readings = split.steady, json.loads(split.volatile)

    def night(self, night: int) -> Iterator[tuple[str, bytes | None]]:
        """What each host answers; None if it does not."""
        for number, name in enumerate(self.names):
            draw = random.Random(f"{number} {night}")
            happened = self._happened[number]
            for place, (_, share, _) in enumerate(CHANGES):
                happened[place] += night > 1 and draw.random() < share
            answers = draw.random() >= UNREACHABLE
            yield name, self._document(number, night, draw) if answers else None

    def _document(self, number: int, night: int, draw: random.Random) -> bytes:
        steady = {name: _own(section, number) for name, section in self._steady.items()}
        steady["host"] = steady["host"].replace(b'"gpu001"', b'"%s"' % self.names[number].encode())
        for place, times in self._happened[number].items():
            section, _, change = CHANGES[place]
            if times:
                steady[section] = change(steady[section], times)
        later = night * 86400 + number / 100
        readings = msgspec.json.encode(other_readings(self._readings, draw, later))
        return documents.join_document(list(steady), steady, readings)


_OWN = re.compile(OWN.pattern.encode())


def _own(section: bytes, number: int) -> bytes:
    digits = b"%08x" % number

    def own(found: "re.Match[bytes]") -> bytes:
        if b"gid" in found[0] or b"guid" in found[0]:
            return found[0][: -len("1234:5678")] + digits[:4] + b":" + digits[4:]
        return found[0][: -len(digits)] + digits

    return _OWN.sub(own, section)


def record(url: str, hosts: int, nights: int) -> None:
    """Record these nights of that many hosts, judged by the baseline of the site."""
    context = open_context(Path(url).parent, (str(BASELINE),))
    site = Site(hosts)
    with open_store(url) as store:
        for night in range(1, nights + 1):
            run = begun_run(night, hosts)
            recorder = store.begin(run)
            recorder.expect(site.names)
            for number, (name, text) in enumerate(site.night(night)):
                recorder.take(_report(context, name, text, night, number), text)
            recorder.finish(msgspec.structs.replace(run, state=RunState.COMPLETE, seconds=1.0))
            if recorder.broken:
                raise recorder.broken


def _report(
    context: VetContext, name: str, text: bytes | None, night: int, number: int
) -> HostReport:
    at = five_nights.start_time(night).timestamp() + number / 100
    status = Status.VETTED if text else Status.UNREACHABLE
    visit = Visit(name, status, "" if text else "no answer on port 22", text, 1.5, at)
    return judge_visit(visit, Host(name=name, expect_hostname=False), context).report


@dataclass(frozen=True)
class RecallCost:
    """Wall time and CPU in seconds."""

    name: str
    wall: float
    cpu: float


def measure(file: Path, hosts: int, rounds: int) -> list[RecallCost]:
    """Decoding a night, then each command; the least of all rounds."""
    url = f"sqlite:///{file}"
    if not file.exists():
        record(url, hosts, 2)
    gpu = _own(b"GPU-afbf4ef8-7cba", hosts // 2).decode()
    commands = (("history", "diff"), ("history", "part", gpu))
    found = [_decoding(hosts)]
    for words in commands:
        rows = [_command(*words, "--store", url) for _ in range(rounds)]
        found.append(min(rows, key=lambda row: row.cpu))
    return found


def _decoding(hosts: int) -> RecallCost:
    """What msgspec takes for a night, measured on some hosts."""
    decode = msgspec.json.Decoder().decode
    some = min(hosts, SAMPLE)
    wall = cpu = 0.0
    for _, text in Site(some).night(1):
        began, clock = time.thread_time(), time.perf_counter()
        decode(text or b"{}")
        cpu += time.thread_time() - began
        wall += time.perf_counter() - clock
    return RecallCost("decoding one night", wall * hosts / some, cpu * hosts / some)


def _command(*words: str) -> RecallCost:
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "nodevet", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return RecallCost(f"`nodevet {' '.join(words[:2])}`", wall, cpu)


def recall_table(costs: Sequence[RecallCost]) -> str:
    least = costs[0]
    lines = [
        "| of all | wall time | CPU | against decoding |",
        "|---|---:|---:|---:|",
        *(
            f"| {it.name} | {it.wall:.2f} s | {it.cpu:.2f} s | {it.cpu / least.cpu:.1f} × |"
            for it in costs
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--nights", type=int, default=2)
    options = parser.parse_args()
    file = options.store.absolute()
    if file.exists():
        print(recall_table(measure(file, options.hosts, 3)))
    else:
        record(f"sqlite:///{file}", options.hosts, options.nights)


if __name__ == "__main__":
    main()
