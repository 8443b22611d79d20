"""What a baseline may say of kernel and host, and what these checks learn of a good node."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode

REFUSED = [
    ("bios", {}, "give one_of, vendor, minimum_date or attributes"),
    ("load", 0, "> 0"),
    ("load", {"maximum": 1, "minutes": 2}, "Invalid enum value 2"),
    ("file_handles", 101, "<= 100"),
    ("memory_fragmentation", 0, "> 0"),
    ("time_sync", {"maximum_error_ms": 0}, "> 0"),
    ("iommu", {"one_of": []}, "length >= 1"),
    ("iommu", {"one_of": ["off"]}, "Invalid enum value 'off'"),
    ("pcie_settings", {}, "give at least one setting"),
    ("pcie_settings", {"minimum_payload_b": 300}, "Invalid enum value 300"),
    ("irq_affinity", {"of": ["nvme"]}, "Invalid enum value 'nvme'"),
    ("limits", {"of": ["slurmd"], "minimum_nofile": 1}, "include the suffix: slurmd.service"),
    ("limits", {"of": ["login"]}, "give at least one minimum"),
    ("limits", {"of": ["login"], "minimum_nofile": "many"}, "'many'"),
    ("stuck_processes", {"seconds": 16}, "<= 15"),
    ("reboots", {"days": 0}, ">= 1"),
    ("cpu_idle_states", -1, ">= 0"),
    ("acs", "off", "bool"),
]


@pytest.mark.parametrize(("check", "value", "words"), REFUSED)
def test_invalid_params_of_host_checks_are_refused(
    check: str, value: object, words: str, make_params: Callable[..., Any]
) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        make_params(check, value)
    assert words in str(caught.value)


def setting(**values: object) -> dict[str, object]:
    return {"address": "0000:19:00.0", "kind": "gpu", "driver": "nvidia", **values}


PORT = {"address": "0000:17:01.0", "kind": "port", "acs_enabled": 0}
METAL = {"virtualization": "none", "bios_version": "2.2.7"}
STATE = {"name": "C1", "latency_us": 2, "cpus": "0", "enabled_cpus": "0"}
LEARNT: list[tuple[str, dict[str, Any], object]] = [
    ("bios", {"host": METAL}, {"one_of": ["2.2.7"]}),
    ("bios", {"host": {**METAL, "virtualization": "kvm"}}, None),
    (
        "iommu",
        {"pci_settings": {"count": 1, "functions": [setting(iommu_group=-1, iommu_type="")]}},
        ["disabled"],
    ),
    ("iommu", {"pci_settings": {"count": 1, "functions": [setting(iommu_group=3)]}}, None),
    ("iommu", {}, None),
    (
        "acs",
        {
            "host": METAL,
            "pci_settings": {
                "count": 2,
                "functions": [PORT, setting(above=["0000:17:01.0"])],
            },
        },
        False,
    ),
    ("acs", {"host": METAL}, None),
    ("cpu_idle_states", {"cpuidle": {"latency_limit_us": 2000000000, "states": [STATE]}}, 2),
    ("cpu_idle_states", {"cpuidle": {"states": [STATE]}}, None),
]


@pytest.mark.parametrize(("check", "sections", "learnt"), LEARNT)
def test_params_are_learnt_from_evidence(
    check: str, sections: dict[str, Any], learnt: object, make_document: Callable[..., Any]
) -> None:
    evidence = decode(msgspec.json.encode(make_document(sections)))
    learn = Catalog().check(check).learn
    assert learn is not None
    assert learn(evidence) == learnt
