"""Each condition of a check has a fault by name: it makes that condition fail, where it was put,
and no other. Probed over the simulated NVML and files, not booted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.model import Finding, Verdict
from nodevet_sim import tree
from nodevet_sim.faults import gpu_states, machine_states, ports
from nodevet_sim.library import environment
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

pytestmark = pytest.mark.timeout(600)
PROBE = """
import json, sys
from nodevet.remote.probe.main import probe
from nodevet.remote.request import checked_request
print(json.dumps(probe(checked_request({"do": "probe", **json.load(sys.stdin)}))))
"""
CATALOG = Catalog()
ECC = {
    f"{life}_{part}corrected": 10_000
    for life in ("volatile", "aggregate")
    for part in ("", "dram_", "sram_")
} | {"aggregate_uncorrected": 0}
BOND = {"interfaces": {"bond0": {"state": "any", "members": 2}}}
ERRORS = dict.fromkeys(("replay", "recovery", "crc_flit", "crc_data"), 10)
BER = {"maximum_effective_ber": 1e-12, "maximum_symbol_ber": 1e-12}
PORT = {
    "count": 8,
    "firmware": "28.41.*",
    "maximum": {"symbol_error": 100, "port_rcv_errors": 10},
    "pkeys": ["0xffff"],
    "rate_gbps": 400,
    "uniform": True,
}
LINK = {"count": 8, "duplex": "full", "maximum": {"rx_crc_errors": 10}, "mtu": 4092}
PCIE = {"aspm": "disabled", "minimum_payload_b": 256, "relaxed_ordering": True, "of": ["gpu"]}
REASONS = ("hw_thermal", "power_brake", "power_cap", "sw_thermal")
OF_ANY: dict[str, Any] = {  # check -> what a baseline says of it
    "cpu_frequency": {"epp": "performance", "minimum_mhz": 800},
    "cpu_topology": {"sockets": 2, "possible": True},
    "dns": {"one_of": ["127.0.0.1"], "search": ["cluster.example"]},
    "ecc_errors": ECC,
    "ecc_mode": True,
    "fabric": {},
    "file_handles": {},
    "gpu_clocks": {"memory": "default"},
    "gpu_lost": {},
    "gpu_repair": {},
    "gpus_alike": {},
    "gsp_firmware": {},
    "inforom": {},
    "memory_errors": {"corrected": 100},
    "mig_mode": False,
    "memory_pressure": {"maximum_dirty_percent": 5},
    "nvlink": {f"{name}_errors": most for name, most in ERRORS.items()} | BER,
    "pci_links": {},
    "pcie_errors": {},
    "pcie_replays": 1000,
    "pcie_settings": PCIE,
    "power_limit": "default",
    "raid": {},
    "row_remapping": {"uncorrected": 64, "banks_none": 0},
    "thermal": {},
    "throttle_reasons": {},
    "throttle_time": {f"{reason}_s": 60 for reason in REASONS},
}
OF_H100: dict[str, Any] = {
    **OF_ANY,
    "fabric": {"required": True},
    "bios": {"vendor": "Dell Inc."},
    "cpu_topology": {"sockets": 2, "model": "Intel(R) Xeon(R) Platinum*", "possible": True},
    "gpu_model": {"device": "10de:2330", "subsystem": "10de:16c1"},
    "gpu_topology": {"pairs": {"NODE": 12, "SYS": 16}},
    "imex": {},
    "infiniband": PORT,
    "network_link": {**BOND, "drivers": {"mlx5_core": {**LINK, "speed_gbps": 400}}},
    "numa_locality": {"gpus": {"0-3": 0, "4-7": 1}},
    "nvswitch": 4,
    "pcie_link": {"generation": 5, "width": 16},
}
OF_GB200: dict[str, Any] = {**OF_ANY, "fabric": {"clique": 2}}
SAID = {"h100-sxm": OF_H100, "gb200": OF_GB200}
KINDS = {  # of other GPUs than an H100
    "clique-other": "gb200",
    "domain-lost": "gb200",
    "domain-other": "gb200",
    "gpu-memory-hot": "a100-sxm-80",
    "memory-unrepairable": "gb200",
    "nvlink-bit-errors": "b200",
    "nvlink-symbol-errors": "b200",
    "pages-pending": "t4",
}
FIRST, FOURTH = "ibp26s0", "ibp94s0"  # below 0000:1a:00.0 and 0000:5e:00.0
PORT_3, NIC_3 = ("infiniband", "mlx5_3:1"), ("network_link", FOURTH)
SWITCH = "0000:83:00.0"
ALIKE = ("infiniband", "MT_0000000838")
FOUND: dict[str, set[tuple[str, str]]] = {  # fault -> the checks and subjects that fail
    "aer-fatal": {("pcie_errors", "3")},
    "aer-nonfatal": {("pcie_errors", "3")},
    "aspm-on": {("pcie_settings", "0000:5d:00.0")},
    "braked-earlier": {("throttle_time", "3")},
    "bios-vendor-other": {("bios", "vendor")},
    "bond-member-down": {("network_link", "bond0"), ("network_link", "ibp60s0")},
    "bond-member-missing": {("network_link", "bond0")},
    "capped-earlier": {("throttle_time", "3")},
    "cpu-absent": {("cpu_topology", "")},
    "cpu-minimum-lowered": {("cpu_frequency", "0-3")},
    "cpu-model-other": {("cpu_topology", "")},
    "clique-other": {("fabric", "3")},
    "domain-recovery": {("imex", "3")},
    "memory-controller-missing": set(),
    "cpu-capped": {("cpu_frequency", "0-3")},
    "cpu-offline": {("cpu_topology", "")},
    "dimm-corrected": {("memory_errors", "mc0")},
    "domain-lost": {("fabric", gpu) for gpu in "0123"},
    "domain-other": {("fabric", "3")},
    "ecc-sram-corrected": {("ecc_errors", "3")},
    "ecc-uncorrected-earlier": {("ecc_errors", "3")},
    "ecc-corrected": {("ecc_errors", "3")},
    "ecc-pending": {("ecc_mode", "3")},
    "ecc-sram-uncorrected": {("ecc_errors", "3")},
    "epp-powersave": {("cpu_frequency", "0-3")},
    "fabric-lost": {("fabric", gpu) for gpu in "01234567"},
    "fabric-misconfigured": {("fabric", "3")},
    "fabric-refused": {("fabric", "3")},
    "gpu-board-other": {("gpu_model", "3"), ("gpus_alike", "3")},
    "gpu-clock-other": {("gpus_alike", "3")},
    "gpu-default-limit-other": {("gpus_alike", "3")},
    "gpu-generation-other": {("gpus_alike", "3")},
    "gpu-memory-clock-other": {("gpus_alike", "3")},
    "gpu-reset-required": {("gpu_lost", "3")},
    "gpu-unlisted": {("numa_locality", "3")},  # another GPU is 3 now; itself: see COUNTED
    "gsp-off": {("gsp_firmware", "3")},
    "gpu-memory-hot": {("thermal", "3")},
    "gpu-moved": {("numa_locality", "3"), ("gpu_topology", "")},
    "ib-port-disabled": {PORT_3, NIC_3},
    "ib-port-errors": {PORT_3},
    "inforom-other": {("inforom", "3")},
    "interface-errors": {("network_link", FIRST)},
    "interface-half-duplex": {("network_link", FIRST)},
    "interface-slow": {("network_link", FIRST)},
    "local-cpus-wrong": {("numa_locality", "3")},
    "nameserver-other": {("dns", "")},
    "nvlink-replays": {("nvlink", "3")},
    "nvswitch-generation": {("nvswitch", SWITCH)},
    "nvswitch-lost": {("nvswitch", SWITCH)},
    "nvswitch-unbound": {("nvswitch", SWITCH)},
    "slowed-earlier": {("throttle_time", "3")},
    "switch-link-narrow": {("pcie_link", "3")},
    "memory-clock-lowered": {("gpu_clocks", "3")},
    "memory-dirty": {("memory_pressure", "")},
    "memory-unrepairable": {("gpu_repair", "3")},
    "mig-on": {("mig_mode", "3")},
    "nic-firmware-other": {PORT_3, ALIKE},
    "nic-generation": {("pci_links", "0000:1a:00.0")},
    "nvlink-bit-errors": {("nvlink", "3")},
    "nvlink-data-errors": {("nvlink", "3")},
    "nvlink-recoveries": {("nvlink", "3")},
    "nvlink-symbol-errors": {("nvlink", "3")},
    "nvswitch-missing": {("nvswitch", "")},
    "ordering-strict": {("pcie_settings", "0000:5d:00.0")},
    "out-of-threads": {("file_handles", "threads")},
    "pages-pending": {("row_remapping", "3")},
    "pcie-replays": {("pcie_replays", "3")},
    "payload-small": {("pcie_settings", "0000:5d:00.0")},
    "pkey-other": {PORT_3},
    "power-brake": {("throttle_reasons", "3")},
    "power-limit-held": {("power_limit", "3")},
    "raid-inactive": {("raid", "md0")},
    "raid-unexpected": set(),  # unless a baseline says how many there are: see COUNTED
    "recovery-needed": {("gpu_lost", "3")},
    "row-remap-failed": {("row_remapping", "3")},
    "rows-remapped": {("row_remapping", "3")},
    "search-domain-missing": {("dns", "")},
    "software-slowdown": {("throttle_reasons", "3")},
    "spare-rows-used": {("row_remapping", "3")},
    "sram-threshold": {("ecc_errors", "3")},
    "subnet-manager-missing": {PORT_3, NIC_3},
    "tpc-repair-pending": {("gpu_repair", "3")},
    "zpool-degraded": {("raid", "tank")},
    "zpool-unexpected": set(),
}
COUNTED: dict[str, tuple[str, dict[str, Any], set[str]]] = {  # fault -> check, params, subjects
    "gpu-unlisted": ("gpu_count", {"count": 8}, {"", "0000:5d:00.0"}),
    "hugepages-reserved": ("hugepages", {"total": {"2M": 0, "1G": 0}}, {"2M"}),
    "raid-unexpected": ("raid", {"arrays": 0, "pools": 0}, {""}),
    "zpool-unexpected": ("raid", {"arrays": 0, "pools": 0}, {""}),
}
UNLISTED = "gpu-unlisted"
UNREAD = {
    "memory-controller-missing": {("memory_errors", "")},
    "raid-inactive": {("raid", "md0")},  # it does not say how many devices it has
}
Judged = Callable[..., list[tuple[str, Finding]]]


@pytest.fixture
def judged(nvml: Path, tmp_path: Path) -> Judged:
    """What these checks say of a node with these faults."""
    number = count()

    def run(
        faults: list[object], gpus: str = "h100-sxm", said: dict[str, Any] | None = None
    ) -> list[tuple[str, Finding]]:
        place = tmp_path / str(next(number))
        known: dict[str, object] = {"gpus": gpus, "cores": 1, "faults": faults}
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        root = place / "root"
        tree.write_out(machine, node.files, node.links, node.device_nodes, root)
        for path, content in node.root_files.items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        (place / "nvml.state").write_text(node.state or "")
        wanted = said or SAID.get(gpus, OF_ANY)
        evidence = probed(place, nvml, wanted)
        return [
            (name, finding)
            for name, params in wanted.items()
            for finding in CATALOG.check(name).judge(evidence, known_params(name, params))
        ]

    return run


def known_params(name: str, params: Any) -> Any:
    found = params_of(CATALOG.check(name).params, params)
    assert found is not None, name
    return found


def probed(place: Path, nvml: Path, said: dict[str, Any]) -> Evidence:
    asks: dict[str, list[str]] = {}
    for name, params in said.items():
        asked = CATALOG.check(name).asks
        for section, names in (asked(known_params(name, params)) if asked else {}).items():
            asks.setdefault(section, []).extend(names)
    sections = {"gpu", "host", "kernel_log", "numa", "pci"}
    sections |= {each for name in said for each in CATALOG.check(name).sections}
    asked_for = {
        "asks": asks,
        "deadline": 60,
        "root": str((place / "root").resolve()),
        "sections": sorted(sections),
        "whole_machine": True,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps(asked_for),
        capture_output=True,
        text=True,
        env={**os.environ, **environment(nvml, place / "nvml.state")},
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return decode(done.stdout)


def with_verdict(findings: list[tuple[str, Finding]], verdict: Verdict) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is verdict}


@pytest.mark.parametrize("profile", ["h100-sxm", *sorted(set(KINDS.values()))])
def test_no_condition_fails_on_a_healthy_node(profile: str, judged: Judged) -> None:
    findings = judged([], profile)
    assert with_verdict(findings, Verdict.FAIL) == set()
    assert with_verdict(findings, Verdict.UNKNOWN) == set()


@pytest.mark.parametrize("fault", sorted(FOUND.keys() - {UNLISTED}))
def test_a_fault_makes_its_condition_fail_and_no_other(fault: str, judged: Judged) -> None:
    findings = judged([fault], KINDS.get(fault, "h100-sxm"))
    assert with_verdict(findings, Verdict.FAIL) == FOUND[fault]
    assert with_verdict(findings, Verdict.UNKNOWN) == UNREAD.get(fault, set())


def test_checks_of_all_gpus_are_unknown_if_nvml_does_not_list_one_gpu(judged: Judged) -> None:
    findings = judged([UNLISTED])
    assert with_verdict(findings, Verdict.FAIL) == FOUND[UNLISTED]
    why = "NVML lists 7 of 8 GPUs: not 0000:5d:00.0"
    doubtful = {
        name for name, each in findings if (each.verdict, each.why) == (Verdict.UNKNOWN, why)
    }
    assert doubtful >= {"ecc_errors", "fabric", "inforom", "mig_mode", "thermal", "throttle_time"}


@pytest.mark.parametrize("fault", sorted(COUNTED))
def test_a_check_with_an_expected_count_fails_only_with_its_fault(
    fault: str, judged: Judged
) -> None:
    check, params, subjects = COUNTED[fault]
    healthy, broken = (judged(faults, said={check: params}) for faults in ([], [fault]))
    assert not with_verdict(healthy, Verdict.FAIL) | with_verdict(healthy, Verdict.UNKNOWN)
    assert with_verdict(broken, Verdict.FAIL) == {(check, subject) for subject in subjects}
    assert with_verdict(broken, Verdict.UNKNOWN) == set()


def test_huge_pages_that_something_holds_are_not_free(judged: Judged) -> None:
    said = {"hugepages": {"total": {"2M": 1024}, "minimum_free": {"2M": 1024}}}
    assert with_verdict(judged(["hugepages-reserved"], said=said), Verdict.OK)
    held = judged(["hugepages-held"], said=said)
    (finding,) = (each for _, each in held if each.verdict is Verdict.FAIL)
    assert (finding.subject.id, finding.actual) == ("2M", {"free": 0})
    assert with_verdict(held, Verdict.UNKNOWN) == set()


def test_every_fault_is_tried() -> None:
    modules = (gpu_states, machine_states, ports)
    assert FOUND.keys() == {name for module in modules for name in module.FAULTS}
