"""The facts of a host: what was read and nothing else, small, and printable as people read them."""

import json
from typing import Any

import pytest

from nodevet.checking.facts import LONGEST, MOST_KINDS, facts_of
from nodevet.evidence.document import decode
from nodevet.model import HostFacts
from nodevet.sheet.json import encode
from nodevet.vet.findings.facts import rows

H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "power_limit_mw": 700000,
}
HOST = {
    "dmi_vendor": "Dell Inc.",
    "dmi_product": "PowerEdge XE9680",
    "kernel": "5.15.0-105-generic",
    "architecture": "x86_64",
    "os_name": "Ubuntu 22.04.4 LTS",
    "uptime_s": 352800.26,
}


def gpus(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"index": index, "bus_id": f"0000:{index:02x}:00.0", **one}
        for index, one in enumerate(each)
    ]


def function(address: str, device: str = "2330") -> dict[str, Any]:
    return {"address": address, "class_code": "030200", "vendor": "10de", "device": device}


def facts(**sections: dict[str, Any]) -> HostFacts:
    found = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    return facts_of(decode(json.dumps({"schema": 1, "probe": "", "sections": found})))


def test_a_whole_host_is_eight_lines() -> None:
    nvml = {"driver_version": "550.90.07", "cuda_version": "12.4", "gpus": gpus(*[H100] * 8)}
    found = facts(host=HOST, gpu=nvml, memory={"total_kb": 2113538048})
    assert dict(rows(found)) == {
        "machine": "Dell Inc. PowerEdge XE9680",
        "GPUs": "8 × NVIDIA H100 80GB HBM3",
        "PCIe": "8 × Gen5 x16",
        "power limit": "8 × 700 W",
        "driver": "550.90.07, CUDA up to 12.4",
        "system": "Ubuntu 22.04.4 LTS, 5.15.0-105-generic x86_64",
        "memory": "2,016 GiB",
        "uptime": "4 d 2 h",
    }


def test_unread_values_are_not_shown() -> None:
    found = facts()
    assert found == HostFacts()
    assert rows(found) == []
    assert encode(found) == "{}"
    assert rows(facts(host={"kernel": "6.1.0"})) == [("system", "6.1.0")]


def test_what_differs_between_gpus_is_counted() -> None:
    slow = {**H100, "pcie_width": 8, "power_limit_mw": 352500}
    found = dict(rows(facts(gpu={"gpus": gpus(H100, slow, H100)})))
    assert found["PCIe"] == "2 × Gen5 x16, 1 × Gen5 x8 now, up to Gen5 x16"
    assert found["power limit"] == "2 × 700 W, 1 × 352.5 W"


def test_a_gpu_that_is_not_in_nvml_is_named_by_its_id() -> None:
    pci = {"functions": [function("0000:00:00.0"), function("0000:41:00.0")]}
    assert facts(pci=pci).gpus == {"PCI 10de:2330": 2}
    assert facts(gpu={"gpus": gpus(H100)}, pci=pci).gpus == {H100["name"]: 1, "PCI 10de:2330": 1}


def test_no_gpu_is_counted_twice_if_nvml_reports_no_pci_address_for_it() -> None:
    lost = {"index": 0, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    pci = {"functions": [function("0000:41:00.0")]}
    assert facts(gpu={"gpus": [lost]}, pci=pci).gpus == {"GPU of unknown model": 1}


def test_facts_with_hostile_text_are_limited_and_printable() -> None:
    named = gpus(*({"name": f"{index}\x1b[2J" + "x" * 4000} for index in range(40)))
    found = facts(host={"dmi_product": "\u202e" + "y" * 4000}, gpu={"gpus": named})
    assert len(found.gpus) == MOST_KINDS
    assert max(map(len, [found.machine or "", *found.gpus])) == LONGEST
    assert all(text.isprintable() for row in rows(found) for text in row)
    assert len(encode(found)) < 2048


@pytest.mark.parametrize(
    ("values", "link"),
    [
        ({"pcie_generation": 5, "pcie_width": 16}, {"Gen5 x16": 1}),
        ({"pcie_generation_max": 4, "pcie_width_max": 16}, {"up to Gen4 x16": 1}),
        ({"pcie_width": 16, "pcie_width_max": 16}, {"x16": 1}),
        ({**H100, "pcie_generation": 1}, {"Gen1 x16 now, up to Gen5 x16": 1}),
        ({}, {}),
    ],
)
def test_a_link_is_reported_with_its_present_and_its_best_speed(
    values: dict[str, int], link: object
) -> None:
    assert facts(gpu={"gpus": gpus(values)}).links == link
