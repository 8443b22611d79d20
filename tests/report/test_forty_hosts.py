"""A fleet as a table, from evidence by the real checks: what is alike is told once, whatever its
serials, addresses, counts and times."""

from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodevet.base.printable import cells
from nodevet.baseline import load_resolved
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import decode
from nodevet.model import HostReport, Status, Verdict
from nodevet.model.run import Run
from nodevet.vet import formats

REPO = Path(__file__).parents[2]
CATALOG = Catalog()
LOST = {"handle": "NVML_ERROR_GPU_IS_LOST"}
NOW = 1_795_320_900.0
COUNTS: dict[str, Any] = {
    "volatile_uncorrected": 0,
    "volatile_dram_uncorrected": 0,
    "volatile_sram_uncorrected": 0,
    "sram_threshold_exceeded": False,
}


def gpu(host: int, index: int, **rest: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{host:08x}-{index:04x}-0000-0000-000000000000",
        "bus_id": f"0000:{16 + index:02x}:00.0",
        "serial": f"16529{host:04}{index:04}",
        "vbios_version": f"96.00.{host % 7:02}.00.01",
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "power_limit_mw": 700_000,
        "power_limit_enforced_mw": 700_000,
        "event_reasons": 0,
        "pstate": 0,
        "temperature_gpu_c": 40 + (host * 7 + index) % 20,
        "recovery_action": "NONE",
        "memory_used_b": 0,
        "ecc_current": True,
        "ecc_pending": True,
        "persistence_mode": True,
        "compute_mode": "DEFAULT",
        "ecc": COUNTS,
        **rest,
    }


def slow(host: int) -> dict[str, Any]:
    """A link on half of its lanes, which had errors, and a GPU that is too hot."""
    bad = host % 8
    return {
        bad: gpu(host, bad, pcie_width=8, pcie_replay_counter=host + 3),
        (bad + 1) % 8: gpu(
            host, (bad + 1) % 8, event_reasons=0x48, temperature_gpu_c=85 + host % 9
        ),
    }


def broken(host: int) -> dict[str, Any]:
    """A GPU that fell off the bus, and one with errors in its memory."""
    bad = host % 8
    lost = {"index": bad, "bus_id": f"0000:{16 + bad:02x}:00.0", "errors": LOST}
    counts = {**COUNTS, "volatile_uncorrected": host, "volatile_dram_uncorrected": host}
    return {bad: lost, (bad + 3) % 8: gpu(host, (bad + 3) % 8, ecc=counts)}


def document(host: int) -> bytes:
    odd = slow(host) if host <= 20 else broken(host)
    gpus = [odd.get(index, gpu(host, index)) for index in range(8)]
    lost = [each["bus_id"] for each in gpus if "errors" in each]
    functions = [
        {
            "address": each["bus_id"], "vendor": "10de", "device": "2330", "class_code": "030200",
            "revision": "ff" if each["bus_id"] in lost else "a1", "driver": "nvidia",
            "upstream": [], "aer": {"correctable": host, "nonfatal": 0, "fatal": 0},
        }
        for each in gpus
    ]  # fmt: skip
    events = [
        {"kind": "xid", "code": 79, "bus_id": bus, "count": 1, "last_s": 60.0 * host}
        for bus in lost
    ]
    sections = {
        "host": {"uptime_s": 9000.0, "clock_s": NOW, "virtualization": "none"},
        "gpu": {"count": 8, "gpus": gpus},
        "pci": {"functions": functions},
        "kernel_log": {"complete": True, "events": events},
    }
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    return msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole})


@pytest.fixture(scope="module")
def run() -> Run:
    (resolved,) = load_resolved(["nvidia-h100-sxm"], folders=[REPO / "baselines"], catalog=CATALOG)
    asked = {"gpu_lost", "ecc_errors", "ecc_mode", "xid", "pcie_link", "power_limit",
             "persistence_mode", "throttle_reasons", "compute_mode"}  # fmt: skip
    baseline = replace(
        resolved.baseline,
        expectations=tuple(each for each in resolved.baseline.expectations if each.check in asked),
    )
    hosts = [
        HostReport(
            host=f"gpu{host:03}",
            status=Status.VETTED,
            baseline=baseline.name,
            findings=judge(
                decode(document(host)), baseline, CATALOG, host="", today=date(2026, 11, 22)
            ),
        )
        for host in range(1, 41)
    ]
    return Run(
        id="x", nodevet="0", started="2026-11-22T04:20:00+00:00", seconds=3, hosts=tuple(hosts)
    )


@pytest.mark.parametrize("width", [120, 200, None])
def test_forty_hosts_with_two_mixes_of_faults_are_four_rows(run: Run, width: int | None) -> None:
    text = formats.render("table", run, width=width)
    lines = text.split("\n\n")[1].splitlines()
    rows = [line.split()[:2] for line in lines if not line.startswith(" ")]
    checks = ["ecc_errors", "gpu_lost", "pcie_link", "throttle_reasons"]
    assert rows == [["FAIL", check] for check in checks]
    assert len(lines) <= 9  # each with its advice, and when the GPUs were lost
    assert width is None or max(map(cells, text.splitlines())) <= width


def test_the_saved_run_keeps_every_finding(run: Run) -> None:
    saved, _ = formats.read(formats.render("json", run, everything=True))
    assert saved == run
    failed = [f for host in saved.hosts for f in host.findings if f.verdict is Verdict.FAIL]
    serials = {(finding.details or {}).get("serial") for finding in failed}
    assert len(serials - {None}) == 60
    told = {finding.check for finding in failed}
    assert "xid" in told
    assert any(f.verdict is Verdict.UNKNOWN for host in saved.hosts for f in host.findings)
