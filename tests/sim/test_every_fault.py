"""A fleet with every fault on one of its nodes: each is found, there and only there."""

import json
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from nodevet.model import Subject
from nodevet_sim.faults import FAULTS
from nodevet_sim.faults.asked import FAULTS as OF_WHAT_IS_ASKED
from nodevet_sim.faults.cpu_memory import FAULTS as OF_CPUS
from nodevet_sim.faults.devices import FAULTS as OF_DEVICES
from nodevet_sim.faults.driver import FAULTS as OF_THE_DRIVER
from nodevet_sim.faults.drives import FAULTS as OF_DRIVES
from nodevet_sim.faults.gpu_health import FAULTS as OF_GPUS
from nodevet_sim.faults.gpu_states import FAULTS as OF_GPU_STATES
from nodevet_sim.faults.host import FAULTS as OF_THE_HOST
from nodevet_sim.faults.kernel import FAULTS as OF_THE_KERNEL
from nodevet_sim.faults.machine_states import FAULTS as OF_MACHINE_STATES
from nodevet_sim.faults.network import FAULTS as OF_THE_NETWORK
from nodevet_sim.faults.ports import FAULTS as OF_PORTS
from nodevet_sim.faults.rdma import FAULTS as OF_RDMA
from nodevet_sim.faults.rising import FAULTS as OF_RISING_COUNTERS
from nodevet_sim.faults.running import FAULTS as OF_A_RUNNING_NODE
from nodevet_sim.faults.settings import FAULTS as OF_SETTINGS
from nodevet_sim.faults.software import FAULTS as OF_THE_SOFTWARE
from nodevet_sim.faults.storage import FAULTS as OF_STORAGE
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(1500)
SPARE = 2  # healthy ones, beside those of the shipped scenario
BASELINES = {
    "every": """\
nodevet: 1
title: these nodes
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}}
expect:
  machine_check: {corrected: 0}
  pcie_errors: {corrected: 10}
""",
    "placed": """\
nodevet: 1
title: a node of which it is known which GPU belongs to which socket
extends: nvidia-h100-sxm
applies: {gpu: {device: "10de:2330"}, hosts: numa-swapped}
expect:
  machine_check: {corrected: 0}
  pcie_errors: {corrected: 10}
  numa_locality: {gpus: {0-3: 0, 4-7: 1}}
""",
}
ALL = [f"GPU {index}" for index in range(8)]
EVERY_POLICY = ["cpufreq 0-15"]
WRONG: dict[str, dict[str, list[str]]] = {  # node -> check -> subjects that are wrong
    "healthy": {},
    "aer-errors": {"pcie_errors": ["GPU 3"]},
    "clock-skew": {"clock_skew": [""]},
    "disk-full": {"disk_space": ["filesystem /"]},
    "driver-mismatch": {
        "kernel_modules": ["module nvidia"],
        "cuda_libraries": [
            "library libcuda.so.1",
            "library libnvidia-ml.so.1",
            "library libnvidia-ptxjitcompiler.so.1",
        ],
        "services": ["unit nvidia-fabricmanager.service"],
    },
    "ecc-uncorrected": {"ecc_errors": ["GPU 3"]},
    "governor-powersave": {"cpu_governor": EVERY_POLICY},
    "gpu-lost": {"gpu_lost": ["GPU 3"], "gpu_count": ["", "GPU 3"]},
    "gpu-missing": {"gpu_count": [""]},
    "kernel-and-firmware": {
        "clocksource": [""],
        "file_handles": ["limit open files"],
        "memory_errors": ["memory controller mc0"],
    },
    "mce": {"machine_check": [""]},
    "numa-swapped": {"numa_locality": ALL},
    "nvml-hang": {},
    "pcie-gen": {"pcie_link": ["GPU 3"]},
    "pcie-width": {"pcie_link": ["GPU 3"]},
    "persistence-off": {"persistence_mode": ALL},
    "power-capped": {"power_limit": ALL},
    "reverts-on-boot": {"cpu_governor": EVERY_POLICY, "power_limit": ALL},
    "row-remap-pending": {"row_remapping": ["GPU 3"], "gpu_lost": ["GPU 3"]},  # asks for a reset
    "thermal-throttle": {"throttle_reasons": ["GPU 3"], "thermal": ["GPU 3"]},
    "xid": {"xid": ["GPU 3"]},
    "xid-79": {"xid": ["GPU 3"]},
}
NOT_VETTED = {  # node -> status, and what the reason says
    "python-missing": ("probe_failed", "no python3 on the node"),
    "slow": ("timeout", ""),
    "sshd-hang": ("timeout", "waiting for the SSH banner"),
    "sshd-stopped": ("unreachable", "connection refused"),
}
NO_WORD = {  # node -> what is unknown there, and why it says so
    "nvml-hang": "nvmlDevice",
    "driver-mismatch": "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "gpu-lost": "NVML_ERROR_GPU_IS_LOST",
}


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    """What one run says of each node."""
    shipped = files("nodevet_sim").joinpath("scenarios/faults.yaml").read_text(encoding="utf-8")
    fleet = boot("faults", f"{shipped}  spare[1-{SPARE}]: {{template: h100}}\n")
    (fleet.project / "baselines").mkdir()
    for name, text in BASELINES.items():
        (fleet.project / "baselines" / f"{name}.yaml").write_text(text, encoding="utf-8")
    options = ("--deadline", "90", "--connect-timeout", "30", "--all", "--format", "json")
    done = fleet.run_in_project("check", "-i", fleet.place.inventory, *options)
    assert done.returncode == 1, done.stderr
    return {host["host"]: host for host in json.loads(done.stdout)["hosts"]}


def labels(host: dict[str, Any], verdict: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in host["findings"]:
        if finding["verdict"] == verdict:
            subject = msgspec.convert(finding.get("subject", {}), Subject)
            label = subject.label if subject.kind == "gpu" else f"{subject.kind} {subject.id}"
            found.setdefault(finding["check"], []).append(label.removeprefix("node").strip())
    return found


def test_every_fault_is_tried(hosts: dict[str, Any]) -> None:
    tried = (set(WRONG) | set(NOT_VETTED)) - {"healthy", "kernel-and-firmware"}
    elsewhere = (
        OF_GPUS.keys()
        | OF_GPU_STATES.keys()
        | OF_MACHINE_STATES.keys()
        | OF_PORTS.keys()
        | OF_THE_HOST.keys()
        | OF_THE_KERNEL.keys()
        | OF_DEVICES.keys()
        | OF_DRIVES.keys()
        | OF_THE_NETWORK.keys()
        | OF_RDMA.keys()
        | OF_THE_SOFTWARE.keys()
        | OF_WHAT_IS_ASKED.keys()
        | OF_CPUS.keys()
        | OF_STORAGE.keys()
        | OF_THE_DRIVER.keys()
        | OF_A_RUNNING_NODE.keys()
        | OF_RISING_COUNTERS.keys()
        | OF_SETTINGS.keys()
    )  # by tests of their own
    assert set(FAULTS) - elsewhere == tried
    assert len(hosts) == len(WRONG) + len(NOT_VETTED) + SPARE


@pytest.mark.parametrize("name", WRONG)
def test_the_fault_is_found_on_its_subject_and_nothing_else(
    hosts: dict[str, Any], name: str
) -> None:
    host = hosts[name]
    assert host["status"] == "vetted"
    assert labels(host, "fail") == WRONG[name], [
        finding for finding in host["findings"] if finding["verdict"] == "fail"
    ]


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_could_not_be_read_is_unknown_with_the_reason(
    hosts: dict[str, Any], name: str
) -> None:
    unknown = [finding for finding in hosts[name]["findings"] if finding["verdict"] == "unknown"]
    if name not in NO_WORD:
        assert unknown == []
    else:
        assert unknown
        assert any(NO_WORD[name] in finding["why"] for finding in unknown)


def test_a_hanging_nvml_call_makes_only_the_gpu_section_unknown(hosts: dict[str, Any]) -> None:
    unknown = [
        finding for finding in hosts["nvml-hang"]["findings"] if finding["verdict"] == "unknown"
    ]
    assert all("nvml" in finding["why"] for finding in unknown)
    assert {finding["check"] for finding in hosts["nvml-hang"]["findings"]} > {"cpu_governor"}


@pytest.mark.parametrize("name", NOT_VETTED)
def test_the_status_of_a_node_that_does_not_answer_says_why(
    hosts: dict[str, Any], name: str
) -> None:
    status, why = NOT_VETTED[name]
    assert hosts[name]["status"] == status
    assert why in hosts[name]["why"]
    assert hosts[name].get("findings", []) == []


def test_the_other_nodes_are_ok(hosts: dict[str, Any]) -> None:
    for name, host in hosts.items():
        if name.startswith("spare"):
            assert host["status"] == "vetted"
            assert {finding["verdict"] for finding in host["findings"]} <= {"ok", "not_applicable"}
