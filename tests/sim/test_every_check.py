"""Every check fails on some simulated node because of a fault that a scenario names, or there is a
reason why none can make it."""

import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevet.checking.catalog import Catalog

WITHOUT: dict[str, str] = {
    "bmc_events": "a BMC is beside the node: tests/bmc has emulators, whose logs have such entries",
    "bmc_identity": "a BMC is beside the node: tests/bmc has emulators, of other machines, too",
    "bmc_sensors": "a BMC is beside the node: tests/bmc has emulators, whose sensors fail",
    "feed": "it judges a workload of the baseline: no fault of a node makes it fail for every one",
    "health_validation": "nodes have no such program: tests/cli/test_health_validation.py has one",
}
"""Check -> why no simulated node can have such a fault."""
COVERAGE = Path(__file__).parents[2] / "docs/coverage.yaml"
TABLES = ("FOUND", "OF_A_T4", "SEEN", "WRONG")
"""In the tests of faults: what each of them makes fail, as those tests hold it."""


def failing(table: Any) -> Iterator[str]:
    """The checks in a table: (check, subject) in sets, or subjects by check; both by fault."""
    for entry in table.values() if isinstance(table, dict) else [table]:
        for each in entry:
            yield each if isinstance(each, str) else each[0]


def tables() -> Iterator[Any]:
    """What faults make fail, by the tables of the tests in this folder."""
    folder = Path(__file__).parent
    for path in [*folder.glob("test_*fault*.py"), *folder.glob("test_*_on_nodes.py")]:
        test = runpy.run_path(str(path))
        yield from (test[name] for name in TABLES if name in test)


def broken() -> set[str]:
    return {check for table in tables() for check in failing(table)}


@cache
def breaks() -> dict[str, set[str]]:
    """Fault, or node with faults -> checks that fail."""
    faults: dict[str, set[str]] = {}
    for table in tables():
        for fault, entry in table.items() if isinstance(table, dict) else ():
            faults.setdefault(fault, set()).update(failing({fault: entry}))
    return faults


ROWS = {
    row["ask"]: row.get("by", [])
    for group in yaml.safe_load(COVERAGE.read_text(encoding="utf-8"))
    for row in group["rows"]
}
SHOWN = {  # row of docs/coverage.yaml about one condition -> the fault of that condition
    "HBM temperature": "gpu-memory-hot",
    "Thermal margin (T.Limit)": "gpu-hot",
    "Average power draw within the board's range": "power-sensor",
    "Power state": "pstate-stuck",
    "Power limit within what the board allows": "power-capped",
    "ECC mode, pending too": "ecc-pending",
    "Memory in use on an idle GPU": "memory-leaked",
    "PCIe generation": "pcie-gen",
    "PCIe width": "pcie-width",
    "Every port up to the CPU; links of NICs and NVMe": "switch-link-narrow",
    "PCIe replays and AER counters": "pcie-replays",
    "MaxReadReq, MaxPayload": "payload-small",
    "NVLinks that are active": "nvlink-down",
    "NVLink speed": "nvlink-slow",
    "NVLink capabilities: P2P, system memory, atomics": "nvlink-no-atomics",
    "NVLink error counters": "nvlink-recoveries",
    "NVLink bit error rate": "nvlink-bit-errors",
    "NVSwitches and their links": "nvswitch-narrow",
    "SXid": "sxid",
    "Fabric manager runs, state of the fabric": "fabric-down",
    "Health mask of the fabric": "fabric-degraded",
    "IMEX domain": "imex-peer-missing",
    "Xid that repeats": "xid-repeated",
    "Recovery that Xid 154 asks for": "xid-recovery",
    "Recovery action of the GPU": "recovery-needed",
    "Uncorrected ECC errors": "ecc-uncorrected",
    "Corrected ECC errors": "ecc-corrected",
    "SRAM errors, their threshold": "sram-threshold",
    "Separate limits for SRAM and DRAM errors": "ecc-sram-corrected",
    "Retired pages (before Ampere)": "pages-retired",
    "Row remap pending": "row-remap-pending",
    "Row remap failed": "row-remap-failed",
    "Rows remapped after uncorrected errors": "rows-remapped",
    "Banks without spare rows": "spare-rows-used",
    "Memory, channels and TPCs that cannot be repaired": "memory-unrepairable",
    "Reset required, GPU lost": "gpu-reset-required",
    "Crashes in libnccl or libcuda": "library-segfault",
    "CPUs online against present and possible": "cpu-absent",
    "Energy preference, turbo, limits of frequency": "epp-powersave",
    "NUMA node and CPUs of each GPU": "gpu-moved",
    "Bus address against module and slot": "modules-swapped",
    "Time spent at the power or thermal limit": "capped-earlier",
    "ZFS pools": "zpool-degraded",
    "Links that flap": "link-flapping",
    "Error counters of NICs": "ib-port-errors",
    "InfiniBand health, partition keys": "pkey-other",
    "NIC firmware": "nic-firmware-other",
    "Ports like their siblings": "nic-firmware-other",
    "Bit error rate of links": "link-bit-errors",
    "OOM kills": "oom-kill",
    "Lockups, hung tasks": "soft-lockup",
    "Panic, BUG, oops": "kernel-oops",
    "Machine checks, EDAC": "dimm-uncorrected",
    "Zombies, tasks in D state": "zombies",
    "802.1X": "nic-down",
}


@pytest.mark.parametrize("ask", SHOWN)
def test_every_coverage_row_about_one_condition_has_a_fault_that_breaks_it(ask: str) -> None:
    assert breaks()[SHOWN[ask]] & set(ROWS[ask])


def test_every_check_that_covers_a_row_fails_with_some_fault() -> None:
    faults = broken()
    covering = {check for checks in ROWS.values() for check in checks}
    assert covering - faults == WITHOUT.keys() & covering


def test_every_check_has_a_fault_that_breaks_it_or_a_reason() -> None:
    checks, found = set(Catalog().ids), broken()
    assert found <= checks
    assert checks - found == WITHOUT.keys(), (
        "a check needs a fault in sim/nodevet_sim/faults and its line in a table here; one that "
        "has it is not listed in WITHOUT"
    )
    assert all(len(why) > 10 for why in WITHOUT.values())
