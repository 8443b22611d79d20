"""What one host sends costs time that grows with its size, never with the square of it.

The same work on evidence of one size and of four times that: linear work takes four times as
long, quadratic work sixteen times. Compared are CPU times of this thread, the best of several.
"""

import gc
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevet.base import typed
from nodevet.baseline.choose import choose
from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.sections import sections as records
from nodevet.model import Finding, Host, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.baseline import Applies, Baseline, GpuMatch
from nodevet.model.run import Run
from nodevet.vet import formats

pytestmark = pytest.mark.timeout(600)
CATALOG = Catalog()
CASES = Path(__file__).parent / "checks"
TIMES = 4
MOST = 9  # times as long; between 4, linear, and 16, quadratic
NOISE = 0.005  # seconds; of shorter times the caches of the processor tell more


def seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def grows_with_size(work: Callable[[int], object]) -> None:
    """Asserts it of `work(1)` and `work(TIMES)`. What the first of each has to make, such as the
    evidence, cannot hide growth: of two small ones the faster counts."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            small = min(seconds(lambda: work(1)) for _ in range(2))
            large = seconds(lambda: work(TIMES))
            if large < MOST * max(small, NOISE):
                return
    finally:
        gc.enable()
    raise AssertionError(f"{small:.4f} s, and {large:.4f} s for {TIMES} times as much")


def address(number: int) -> str:
    return f"{number >> 16:04x}:{number >> 8 & 255:02x}:{number >> 3 & 31:02x}.{number & 7}"


def sections(size: int) -> dict[str, Any]:
    """The most that a machine may have at size 4, and as much wrong with it as there can be."""
    gpus = 64 * size
    functions = 4096 * size
    ports = [address(functions + number) for number in range(16)]
    kinds = {"vendor": "10de", "device": "2330", "class_code": "030200", "numa_node": 1}
    return {
        "host": {"uptime_s": 9e5, "virtualization": "none", "clock_s": 0.0, "asked_s": 1.0},
        "gpu": {
            "driver_version": "550.90.07",
            "count": gpus,
            "gpus": [
                {
                    "index": number,
                    "uuid": f"GPU-{number}",
                    "bus_id": address(number),
                    "minor_number": number,
                    "pci_device": "10de:1234",
                    "recovery_action": "NONE" if number % 2 else "GPU_RESET",
                    "event_reasons": 0x41,
                    "temperature_gpu_c": number % 90,
                    "pcie_width": 4,
                    "pcie_width_max": 16,
                    "pcie_generation": 3,
                    "pcie_generation_max": 5,
                    "errors": {"persistence_mode": "NVML_ERROR_GPU_IS_LOST"},
                    "processes": [{"pid": 1 + number * 32 + each} for each in range(32)],
                }
                for number in range(gpus)
            ],
        },
        "pci": {
            "functions": [
                {
                    **kinds,
                    "address": address(number),
                    "revision": "ff",
                    "local_cpulist": "0-7",
                    "upstream": ports,
                    "aer": {"fatal": 1, "kinds": {f"K{number % 9}": 1}},
                }
                for number in range(functions)
            ]
        },
        "numa": {
            "online": "0-1",
            "nodes": [{"id": n, "cpulist": str(n)} for n in range(256 * size)],
        },
        "cpufreq": {
            "policies": [
                {"policies": str(number), "cpus": str(number), "governor": f"g{number}"}
                for number in range(2048 * size)
            ]
        },
        "modules": {
            "loaded": [f"m{number}" for number in range(4096 * size)],
            "builtin": [f"b{number}" for number in range(4096 * size)],
            "device_nodes": [{"path": f"/dev/nvidia{number}"} for number in range(256 * size)],
        },
        "processes": {
            "complete": True,
            "processes": [
                {"pid": number, "cpus_allowed": f"0-{number % 64}", "mems_allowed": "0-1"}
                for number in range(1, 512 * size)
            ],
        },
        "kernel_log": {
            "complete": False,
            "events": [
                {
                    "kind": ("xid", "aer", "mce", "sxid")[number % 4],
                    "code": number,
                    "bus_id": address(functions + number),
                    "severity": "fatal",
                    "count": 1,
                    "text": f"line {number}",
                }
                for number in range(1024 * size)
            ],
        },
        "filesystems": {
            "filesystems": [{"path": f"/{number}", "size_b": 9} for number in range(16 * size)]
        },
        "sysctl": {"parameters": [{"name": f"a.b{n}", "value": "1"} for n in range(128 * size)]},
        "services": {
            "units": [{"name": f"u{n}.service", "active_state": "no"} for n in range(128 * size)]
        },
        "memory": {"swap_total_kb": 1},
    }


@cache
def document(size: int) -> bytes:
    found = {name: {"status": "ok", "data": data} for name, data in sections(size).items()}
    return json.dumps({"schema": 1, "probe": "", "sections": found}).encode()


@cache
def evidence(size: int) -> Evidence:
    found = decode(document(size))
    empty = {name: found[records()[name]].why for name in sections(1)}
    assert not any(empty.values()), empty
    return found


def wants(check: str) -> list[Any]:
    """Everything that the cases of a check params."""
    model = CATALOG.check(check).params
    found = []
    for path in sorted((CASES / check).glob("*.yaml")):
        value = yaml.safe_load(path.read_text(encoding="utf-8"))["params"]
        params = params_of(model, value)
        found += [] if params in found else [params]
    return found


def test_d1_decoding_time_grows_linearly_with_the_document() -> None:
    grows_with_size(lambda size: decode(document(size)))


@pytest.mark.parametrize("check", CATALOG.ids)
def test_d1_the_time_of_a_check_grows_linearly_with_the_evidence(check: str) -> None:
    judge, wanted = CATALOG.check(check).judge, wants(check)
    assert wanted

    counts: dict[int, int] = {}

    def work(size: int) -> None:
        counts[size] = sum(1 for params in wanted for _ in judge(evidence(size), params))

    grows_with_size(work)
    assert counts[TIMES]


def test_d1_gpu_lost_judges_1900_lost_gpus_quickly() -> None:
    """Of `gpu_lost`: every function is a GPU that is off the bus."""
    functions = [
        {"address": address(number), "vendor": "10de", "class_code": "030200", "revision": "ff"}
        for number in range(1900)
    ]
    data = {"pci": {"status": "ok", "data": {"functions": functions}}}
    text = json.dumps({"schema": 1, "probe": "", "sections": data})
    assert 150_000 < len(text) < 190_000
    found: list[Finding] = []
    check = CATALOG.check("gpu_lost")
    took = seconds(lambda: found.extend(check.judge(decode(text), check.params())))
    assert sum(finding.verdict is Verdict.FAIL for finding in found) == 1900
    assert (found[-1].details or {})["lost here"] == "1900 GPUs"
    assert took < 5, "it took 44 s"


def test_d1_the_time_to_choose_a_baseline_grows_linearly_with_the_evidence() -> None:
    applies = Applies(gpu=GpuMatch(devices=("10de:2330",), count=8))
    several = [Baseline(name=f"b{n}", path=f"b{n}", applies=applies) for n in range(9)]
    grows_with_size(lambda size: choose(several, evidence(size), Host(name="n")))


def test_d1_a_node_of_many_kinds_of_gpus_is_reported_in_a_sentence() -> None:
    functions = [
        {
            "address": address(number),
            "vendor": "10de",
            "device": f"{number:04x}" * 20,
            "class_code": "030200",
        }
        for number in range(500)
    ]
    data = {"pci": {"status": "ok", "data": {"functions": functions}}}
    found = decode(json.dumps({"schema": 1, "probe": "", "sections": data}))
    applies = Applies(gpu=GpuMatch(devices=("10de:2330",)))
    why = choose([Baseline(name="b", path="b", applies=applies)], found, Host(name="n"))
    assert isinstance(why, str) and len(why) < 1000 and "and 492 other kinds (mixed)" in why


def run_of(size: int, shift: int = 0) -> Run:
    """One host with as many findings as there is no judge to bound them, and two ordinary ones."""
    findings = tuple(
        Finding(
            verdict=(Verdict.FAIL, Verdict.UNKNOWN, Verdict.OK, Verdict.WAIVED)[number % 4],
            subject=Subject(kind="pci", id=address(number), uuid=f"U{number}" if shift else None),
            expected={"a": number, "b": list(range(8))},
            actual={"a": number + shift + 1, "b": list(range(9))},
            why=f"reason {number + shift}",
            advice=f"advice {number}",
            check=("one", "other")[number % 2],
            severity=Severity.WARNING,
            origin="b.yaml:3",
        )
        for number in range(500 * size)
    )
    same = tuple(
        Finding(verdict=Verdict.FAIL, expected=1, actual=number + shift, check="node")
        for number in range(500 * size)
    )
    long = Finding(
        verdict=Verdict.FAIL,
        expected=list(range(2000 * size)),
        actual=list(range(1, 4000 * size, 2)),
        check="list",
    )
    hosts = (
        HostReport(host="bad", status=Status.VETTED, findings=(*findings, *same, long)),
        HostReport(host="n1", status=Status.VETTED, findings=findings[:3]),
        HostReport(host="n2", status=Status.TIMEOUT, why="no answer"),
    )
    return Run(id="", nodevet="0", started="2026-11-20T08:00:00+00:00", seconds=1.0, hosts=hosts)


RUNS = {(size, shift): run_of(size, shift) for size in (1, TIMES) for shift in (0, 1)}


@pytest.mark.parametrize("name", formats.formats())
def test_d1_the_time_of_a_report_grows_linearly_with_its_findings(name: str) -> None:
    grows_with_size(lambda size: formats.render(name, RUNS[size, 0]))


def test_the_time_to_search_for_duplicate_keys_grows_linearly() -> None:
    """Of the last keys, so that all the others are compared with them."""

    def search(size: int) -> None:
        keys = [f'"{number}":0' for number in range(4000 * size)]
        text = "{" + ",".join([*keys, *keys[-1:]]) + "}"
        assert typed.repeated_key(text.encode()) == keys[-1].split('"')[1]

    grows_with_size(search)
