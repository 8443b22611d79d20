"""What one fault makes of many checks is one line: as the judge and the reports tell it."""

from datetime import date

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import decode
from nodevet.model import HostReport, Status
from nodevet.model.baseline import Baseline, Expectation
from nodevet.model.run import Run
from nodevet.vet.findings import fold

CATALOG = Catalog()
SAID = {
    "gpu_count": {"count": 8},
    "gpu_lost": {},
    "gpu_model": {"device": "10de:2330"},
    "ecc_errors": {},
    "ecc_mode": {"enabled": True},
    "fabric": {},
    "gpu_topology": {"pairs": {"NODE": 12, "SYS": 16}},
    "kernel_modules": {"loaded": ["nvidia", "nvidia_uvm"], "absent": ["nouveau"]},
    "mig_mode": {"enabled": False},
    "nic_pairing": {},
    "nvlink": {},
    "pcie_link": {"generation": 5, "width": 16},
    "persistence_mode": {"enabled": True},
    "power_limit": {"watts": "default"},
    "row_remapping": {},
    "services": {"running": ["nvidia-fabricmanager.service"]},
    "thermal": {},
    "throttle_reasons": {},
    "xid": {},
}
BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
FUNCTIONS = [
    {
        "address": f"0000:{bus:02x}:00.0", "class_code": "030200", "vendor": "10de",
        "device": "2330", "revision": "a1", "physfn": "", "numa_node": at // 4,
        "upstream": [f"0000:{bus - 2:02x}:01.0"],
    }
    for at, bus in enumerate(BUSES)
]  # fmt: skip
UNIT = {"name": "nvidia-fabricmanager.service", "active_state": "failed", "sub_state": "failed"}
MODULES = {"loaded": ["ext4"], "builtin": [], "on_demand": [], "device_nodes": []}
NONE = {"errors": {"nvidia_version": "ENOENT", "nvidia_flavour": "ENOENT"}}
LOADED = {"loaded": ["nvidia", "nvidia_uvm"], "nvidia_version": "550.90.07"}
NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND: libnvidia-ml.so.1: cannot open shared object file"


def lines_of(sections, said=SAID):
    """The lines of the table about a node with this evidence."""
    whole = {
        name: section if "status" in section else {"status": "ok", "data": section}
        for name, section in sections.items()
    }
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole}))
    checks = {name: CATALOG.check(name) for name in said}
    wishes = tuple(
        Expectation(
            check=name,
            params=msgspec.convert(said[name], check.params),
            severity=check.severity,
            origin="site.yaml:1",
        )
        for name, check in checks.items()
    )
    baseline = Baseline(name="site", path="site.yaml", expectations=wishes)
    found = judge(evidence, baseline, CATALOG, host="gpu1", today=date(2026, 11, 22))
    host = HostReport(host="gpu1", status=Status.VETTED, findings=found)
    return fold.lines(
        Run(id="r", nodevet="0", started="2026-11-22T05:20:00+00:00", seconds=1.0, hosts=(host,))
    )


@pytest.mark.parametrize(
    ("gpu", "modules"),
    [
        ({"status": "absent", "why": NO_LIBRARY}, {**MODULES, **NONE}),
        ({"status": "error", "why": "NVML_ERROR_DRIVER_NOT_LOADED"}, {**MODULES, **NONE}),
        ({"status": "absent", "why": NO_LIBRARY}, {**MODULES, **LOADED}),
        ({"status": "error", "why": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}, {**MODULES, **LOADED}),
    ],
    ids=["no driver", "not loaded", "no library", "two versions"],
)
def test_a_missing_or_incomplete_driver_is_one_line(gpu, modules):
    lines = lines_of(
        {
            "host": {"virtualization": "none", "uptime_s": 9999.0, "clock_s": 1.7e9},
            "pci": {"functions": FUNCTIONS, "aer_ports": []},
            "numa": {"online": "0-1"},
            "kernel_log": {"complete": True, "events": [], "crashes": []},
            "services": {"units": [UNIT]},
            "gpu": gpu,
            "modules": modules,
        }
    )
    assert [(line.label, line.check, line.subjects) for line in lines] == [
        ("FAIL", "kernel_modules", "module nvidia")
    ]
    assert set(lines[0].checks) >= {"gpu_count", "services", "ecc_mode", "xid", "nvlink"}


def test_a_fabric_manager_that_is_down_is_one_line_with_its_consequences():
    gpus = [
        {
            "index": at, "bus_id": each["address"], "minor_number": at, "pci_device": "10de:2330",
            "fabric": {"state": "NOT_STARTED"}, "errors": {},
            "nvlinks": [{"link": link, "active": False} for link in range(18)],
        }
        for at, each in enumerate(FUNCTIONS)
    ]  # fmt: skip
    lines = lines_of(
        {
            "host": {"virtualization": "none", "uptime_s": 9999.0, "clock_s": 1.7e9},
            "pci": {"functions": FUNCTIONS, "aer_ports": []},
            "numa": {"online": "0-1"},
            "kernel_log": {"complete": True, "events": [], "crashes": []},
            "services": {"units": [UNIT]},
            "gpu": {"count": 8, "gpus": gpus, "driver_version": "550.90.07"},
            "modules": {**MODULES, **LOADED},
        }
    )
    (line,) = (each for each in lines if "services" in each.checks)
    assert (line.subjects, line.label) == ("unit nvidia-fabricmanager.service", "FAIL")
    assert "fabric" in line.checks
    assert not [each for each in lines if each.label == "FAIL" and each.check == "fabric"]


def test_an_nfs_server_that_is_down_is_one_line_with_its_consequences():
    silent = {"kind": "nfs_silent", "detail": "filer", "count": 2, "last_s": 900.0}
    hung = {"kind": "hung_task", "detail": "python3", "count": 1, "last_s": 920.0}
    waits = {"command": "python3", "state": "D", "wchan": "rpc_wait_bit_killable"}
    lines = lines_of(
        {
            "host": {"virtualization": "none", "uptime_s": 9999.0, "clock_s": 1.7e9},
            "kernel_log": {"complete": True, "events": [silent, hung], "crashes": []},
            "stuck": {
                "watched_s": 5.0, "complete": True, "blocked_count": 2, "zombie_count": 0,
                "blocked": [{"pid": 4242, **waits}, {"pid": 4243, **waits}], "zombies": [],
            },
        },
        {"kernel_faults": {}, "storage_errors": {}, "stuck_processes": {}},
    )  # fmt: skip
    (line,) = (each for each in lines if each.label == "FAIL")
    assert (line.check, line.subjects) == ("storage_errors", "server filer")
    assert set(line.checks) == {"storage_errors", "stuck_processes", "kernel_faults"}


def test_a_lost_nvlink_of_a_bridge_is_one_line_for_both_gpus():
    addresses = ("0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0")
    gpus = [
        {
            "index": at, "bus_id": address, "minor_number": at, "errors": {},
            "nvlinks": [
                {"link": link, "active": at > 1 or link != 2, "speed_mbps": 26562,
                 **({"remote_bus_id": addresses[at ^ 1]} if at > 1 or link != 2 else {})}
                for link in range(4)
            ],
        }
        for at, address in enumerate(addresses)
    ]  # fmt: skip
    functions = [{**FUNCTIONS[0], "address": address} for address in addresses]
    lines = lines_of(
        {
            "host": {"virtualization": "none", "uptime_s": 9999.0, "clock_s": 1.7e9},
            "pci": {"functions": functions, "aer_ports": []},
            "gpu": {"count": 4, "gpus": gpus, "driver_version": "550.90.07"},
        },
        {"nvlink": {}},
    )
    assert [(each.label, each.subjects) for each in lines] == [("FAIL", "GPU 0")]
