"""Workloads as a file would hold them, and nodes as the probe would tell of them."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from nodevet.base.typed import convert
from nodevet.checking.feeding.workload import Workload, WorkloadFile, workload_of
from nodevet.evidence.document import Evidence, decode

RESNET = {
    "nodevet": 1,
    "workload": "ResNet-50, FP16, A100",
    "batch_sizes": [32, 64, 128, 256, 512, 1024],
    "sample_size": "500 kB",
    "gpus": 1,
    "workers": 8,
    "step": {"fixed": "5.015 ms", "per_sample": "26.28 us"},
    "transform": {"worker_rate": "250 MB/s", "gpu_rate": "50 GB/s"},
    "storage": {"read": "20 GB/s"},
    "link": "Gen4 x16",
}
SWITCH, ROOT, LEAF = "0000:0{}:00.0", "0000:00:0{}.0", "0000:02:0{}.0"


def made(**changes: Any) -> Workload:
    """The worked example with other fields; None leaves one out."""
    fields = {**deepcopy(RESNET), **changes}
    fields = {name: value for name, value in fields.items() if value is not None}
    found = convert(fields, WorkloadFile)
    return workload_of(found, found.workload)


def sections(gpus: int = 2) -> dict[str, Any]:
    """A machine of 32 cores in two NUMA nodes, its GPUs below one switch with one uplink."""
    above = [SWITCH.format(1), ROOT.format(1)]
    leaves = [LEAF.format(index) for index in range(gpus)]
    port = {"class_code": "060400", "vendor": "1000", "link_gts": 16.0, "link_gts_max": 16.0,
            "link_width": 16}  # fmt: skip
    functions = [{"address": address, **port} for address in (*leaves, *above)]
    listed = []
    for index in range(gpus):
        address = f"0000:1{index}:00.0"
        functions.append(
            {"address": address, "class_code": "030200", "vendor": "10de", "driver": "nvidia",
             "physfn": "", "numa_node": 0, "upstream": [leaves[index], *above]}
        )  # fmt: skip
        listed.append(
            {"index": index, "bus_id": address, "name": "NVIDIA A100", "pcie_generation": 4,
             "pcie_generation_max": 4, "pcie_width": 16}
        )  # fmt: skip
    drive = {"address": "0000:20:00.0", "class_code": "010802", "vendor": "144d",
             "link_gts": 16.0, "link_gts_max": 16.0, "link_width": 4}  # fmt: skip
    nic = {"name": "eth0", "kind": "physical", "type": 1, "operstate": "up", "speed_mbps": 100000}
    return {
        "cpu": {"cores": 32, "threads": 64},
        "numa": {
            "online": "0-1",
            "nodes": [{"id": 0, "cpulist": "0-15,32-47"}, {"id": 1, "cpulist": "16-31,48-63"}],
        },
        "gpu": {"count": gpus, "gpus": listed},
        "pci": {"functions": [*functions, drive]},
        "host": {"virtualization": "none"},
        "nvme": {"controllers": [{"name": "nvme0", "address": "0000:20:00.0"}]},
        "network": {"interfaces": [nic]},
        "infiniband": {"devices": []},
        "memory": {"total_kb": 512 << 20},
    }


def evidence_of(found: dict[str, Any]) -> Evidence:
    whole = {
        name: each if "status" in each else {"status": "ok", "data": each}
        for name, each in found.items()
    }
    return decode(json.dumps({"schema": 1, "probe": "0", "sections": whole}))


@pytest.fixture
def workload() -> Callable[..., Workload]:
    return made


@pytest.fixture
def machine() -> Callable[..., dict[str, Any]]:
    return sections


@pytest.fixture
def evidence() -> Callable[[dict[str, Any]], Evidence]:
    return evidence_of
