"""Every fault is found where it was put, and nowhere else: probed and judged without booting."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from itertools import count, permutations
from pathlib import Path

import pytest

from nodevet.baseline import available, choose, load
from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import Pci
from nodevet.model import Finding, Host, Verdict
from nodevet_sim import tree
from nodevet_sim.description import SimulatedNode
from nodevet_sim.faults import (
    FAULTS,
    FaultError,
    Healthy,
    asked,
    combine,
    cpu_memory,
    describe,
    devices,
    driver,
    drives,
    gpu_health,
    gpu_states,
    host,
    kernel,
    machine_states,
    network,
    ports,
    rdma,
    rising,
    running,
    settings,
    software,
    storage,
    summary,
)
from nodevet_sim.library import environment
from nodevet_sim.machine import SimulatedMachine, machine_id
from nodevet_sim.scenario import ScenarioError
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario import load as load_scenario
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin
from nodevet_sim.shipped import KINDS
from nodevet_sim.state import of_gpu, values

# judged by whoever writes these checks; device nodes are plain files where nothing is booted,
# and there is no clock, no block device, no network interface and no drive to ask
ELSEWHERE = {
    "clock_skew",
    "cuda_libraries",
    "device_nodes",
    "disk_space",
    "drive_health",
    "ecc_errors",
    "gpu_lost",
    "network_link",
    "nvme_health",
    "row_remapping",
    "services",
    "sysctl",
    "time_sync",
    "xid",
}
PROBE = """
import json, sys
from nodevet.remote.probe.main import probe
from nodevet.remote.request import checked_request
print(json.dumps(probe(checked_request({"do": "probe", **json.load(sys.stdin)}))))
"""
Findings = list[Finding]
Read = Callable[..., Evidence]


def node(name: str = "n1", **said: object) -> SimulatedNode:
    """A described node; eight H100 on small sockets unless something else is said."""
    known: dict[str, object] = {"gpus": "h100-sxm", "cores": 1, **said}
    part = NodePart.model_validate_json(json.dumps(known))
    return describe_node(NodeSpec(name, part, known, Path(), {"": Origin("here")}))


@pytest.fixture
def read(nvml: Path, tmp_path: Path) -> Read:
    """What the probe reads of a node that was described and written, not booted."""
    number = count()

    def run(described: SimulatedNode, deadline: float = 60) -> Evidence:
        place = tmp_path / str(next(number))
        machine = SimulatedMachine(
            described.name, machine_id(described.name), sockets=1, cores_per_socket=1
        )
        root = place / "root"
        # of a module that is not loaded the simulated kernel shows nothing
        there = (each for each in described.modules if each.how == "available")
        absent = {f"sys/module/{each.name}/initstate" for each in there}
        files = {path: text for path, text in described.files.items() if path not in absent}
        tree.write_out(machine, files, described.links, described.device_nodes, root)
        (place / "nvml.state").write_text(described.state or "")
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            input=json.dumps(
                {
                    "deadline": deadline,
                    "root": str(root.resolve()),
                    "whole_machine": True,
                    "asks": {"gpu": ["nvlink_ber"]},
                }
            ),
            capture_output=True,
            text=True,
            env={**os.environ, **environment(nvml, place / "nvml.state")},
            timeout=deadline + 30,
        )
        assert done.returncode == 0, done.stderr
        return decode(done.stdout)

    return run


@pytest.fixture(scope="module")
def vetted() -> Callable[..., Findings]:
    """The findings of the shipped baseline that fits, or of another file's."""
    catalog = Catalog()
    names = [name for name, _ in available(())]
    shipped = load(names, catalog=catalog)

    def run(found: Evidence, file: Path | None = None) -> Findings:
        chosen = load([str(file)], catalog=catalog) if file else shipped
        baseline = choose(chosen, found, Host(name="n1"))
        assert not isinstance(baseline, str), baseline
        findings = judge(found, baseline, catalog, host="n1", today=date(2026, 1, 1))
        return [finding for finding in findings if finding.check not in ELSEWHERE]

    return run


def wrong(findings: Findings, verdict: Verdict = Verdict.FAIL) -> set[tuple[str, str]]:
    return {
        (finding.check, finding.subject.id if finding.subject else "")
        for finding in findings
        if finding.verdict is verdict
    }


@pytest.mark.parametrize("profile", sorted(KINDS))
def test_a_healthy_node_of_every_profile_is_ok(
    profile: str, read: Read, vetted: Callable[..., Findings]
) -> None:
    findings = vetted(read(node(gpus=profile)))
    odd = [each for each in findings if each.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE)]
    assert odd == []
    assert len(findings) > 10


BOARDS = {  # with NVLink: how many links a GPU has
    "a100-sxm-40": 12,
    "a100-sxm-80": 12,
    "b200": 18,
    "b300": 18,
    "gb200": 18,
    "gb300": 18,
    "h100-sxm": 18,
    "h200-sxm": 18,
}


@pytest.mark.parametrize("profile", BOARDS)
def test_one_nvlink_down_fails_against_the_link_count_of_the_board(
    profile: str, read: Read, vetted: Callable[..., Findings]
) -> None:
    """Also if every GPU lost one: then none has fewer than the others."""
    gpus = range(4 if profile.startswith("gb") else 8)
    one = vetted(read(node(gpus=profile, faults={"nvlink-down": {"gpu": 3, "links": 1}})))
    assert ("nvlink", "3") in wrong(one)
    down = [{"nvlink-down": {"gpu": gpu, "links": 1}} for gpu in gpus]
    findings = vetted(read(node(gpus=profile, faults=down)))
    assert {("nvlink", str(gpu)) for gpu in gpus} <= wrong(findings)
    (finding,) = (each for each in one if each.check == "nvlink" and each.verdict is Verdict.FAIL)
    assert str(BOARDS[profile]) in str(finding.expected)


ALL = [str(gpu) for gpu in range(8)]
SEEN = {
    "driver-mismatch": {("kernel_modules", "nvidia")},
    "governor-powersave": {("cpu_governor", "0-3")},
    "gpu-missing": {("gpu_count", "")},
    "pcie-gen": {("pcie_link", "3")},
    "pcie-width": {("pcie_link", "3")},
    "persistence-off": {("persistence_mode", gpu) for gpu in ALL},
    "power-capped": {("power_limit", gpu) for gpu in ALL},
    "thermal-throttle": {("throttle_reasons", "3"), ("thermal", "3")},
}
OTHERS = (
    asked, cpu_memory, devices, driver, drives, gpu_health, gpu_states, host, kernel,
    machine_states, network, ports, rdma, rising, running, settings, software, storage,
)  # fmt: skip
OF_OTHER_TESTS = {name for each in OTHERS for name in each.FAULTS}
SILENT = sorted(
    FAULTS.keys() - SEEN.keys() - OF_OTHER_TESTS - {"gpu-lost", "nvml-hang", "sshd-stopped"}
)
"""Found by other checks, by the node's own status, or only by who knows better; an sshd that
is stopped contradicts one that hangs."""


@pytest.mark.parametrize("fault", sorted(SEEN))
def test_a_fault_is_found_and_nothing_else(
    fault: str, read: Read, vetted: Callable[..., Findings]
) -> None:
    assert wrong(vetted(read(node(faults=fault)))) == SEEN[fault]


def test_other_faults_change_nothing_that_these_checks_judge(
    read: Read, vetted: Callable[..., Findings]
) -> None:
    assert len(SILENT) == 13
    assert wrong(vetted(read(node(faults=SILENT)))) == set()


def test_a_lost_gpu(read: Read, vetted: Callable[..., Findings]) -> None:
    found = read(node(faults={"gpu-lost": {"gpu": 5}}))
    (dead,) = [each for each in found[Pci].data.functions if each.revision == "ff"]
    assert (dead.address, dead.link_gts, dead.link_width) == ("0000:bb:00.0", None, None)
    assert (dead.driver, dead.aer.fatal) == ("nvidia", 0)
    assert found[Gpus].data.gpus[5].errors["uuid"] == "NVML_ERROR_GPU_IS_LOST"
    findings = vetted(found)
    assert {check for check, _ in wrong(findings)} <= {"gpu_count"}
    assert {subject for _, subject in wrong(findings, Verdict.UNKNOWN)} <= {"5"}


def test_a_hanging_nvml_call_times_out_only_the_gpu_section(read: Read) -> None:
    found = read(node(faults="nvml-hang"), 6)
    assert found[Gpus].status == "timeout"
    assert found[Pci].status == "ok"


def test_a_missing_gpu_leaves_the_others_as_they_are(read: Read) -> None:
    before, after = read(node()), read(node(faults={"gpu-missing": {"gpu": 2}}))
    left = [gpu for gpu in before[Gpus].data.gpus if gpu.index != 2]
    for field in ("uuid", "bus_id", "minor_number", "serial"):
        known = [getattr(gpu, field) for gpu in left]
        assert [getattr(gpu, field) for gpu in after[Gpus].data.gpus] == known
    gone = before[Gpus].data.gpus[2].bus_id
    assert gone not in [each.address for each in after[Pci].data.functions]
    assert "/dev/nvidia2" not in [each.path for each in after[Modules].data.device_nodes]


def test_swapped_numa_nodes_fail_a_baseline_that_pins_gpus_to_numa_nodes(
    read: Read, vetted: Callable[..., Findings], tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "nodevet: 1\nextends: nvidia-h100-sxm\n"
        'applies: {gpu: {device: "10de:2330"}}\nexpect: {numa_locality: {gpus: {0-3: 0, 4-7: 1}}}\n'
    )
    assert wrong(vetted(read(node()), site)) == set()
    swapped = vetted(read(node(faults="numa-swapped")), site)
    assert wrong(swapped) == {("numa_locality", gpu) for gpu in ALL}


def test_combined_faults_give_the_findings_of_each_in_any_order(
    read: Read, vetted: Callable[..., Findings]
) -> None:
    faults = [{"pcie-width": {"gpu": 1, "width": 4}}, "governor-powersave", "persistence-off"]
    expected = {("pcie_link", "1"), ("cpu_governor", "0-3"), *SEEN["persistence-off"]}
    described = {describe_text(node(faults=list(order))) for order in permutations(faults)}
    assert len(described) == 1
    assert wrong(vetted(read(node(faults=faults)))) == expected


def describe_text(described: SimulatedNode) -> str:
    """A node without the order in which it was put together."""
    return repr((sorted(described.files.items()), sorted(values(described.state or "").items())))


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ([{"pcie-width": {"width": 8}}, {"pcie-width": {"width": 4}}], "pcie-width and pcie-width"),
        (["gpu-missing", "gpu-lost"], "gpu-missing and gpu-lost conflict on GPU 3"),
        (
            [{"ib-port-down": {"device": 0}}, "rdma-names-swapped"],
            "rdma-names-swapped and ib-port-down conflict on sys/",
        ),
        (["gpu-lost", "pcie-width"], "gpu-lost and pcie-width conflict on sys/"),
        (["clock-skew", {"clock-skew": {"seconds": 5}}], "on clock_offset_s"),
        ([{"pcie-width": {"gpu": 8}}], "there is no GPU 8; the node has 8, from 0"),
        ([{"pcie-width": {"width": 8}}, {"power-capped": {"watts": 900}}], "not 900 W"),
        (
            [{"governor-powersave": {"governor": "ondemand"}}],
            "powersave, not ondemand",
        ),
        ([{"nvml-hang": {"call": "temprature_gpu_c"}}], "did you mean temperature_gpu_c?"),
        ([{"driver-mismatch": {"module": "580.105.08"}}], "give another `module`"),
        (["device-node-missing", "device-node-closed"], "conflict on /dev/nvidia-uvm"),
        ([{"device-node-missing": {"path": "/dev/nvidia9"}}], "the node has no /dev/nvidia9"),
    ],
)
def test_impossible_values_are_refused(faults: list[object], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        node(faults=faults)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("said", "fault", "words"),
    [
        ({"gpus": "t4"}, "row-remap-pending", "GPU 3 has no remapping.uncorrected"),
        ({"gpus": "rtx-4090"}, "ecc-uncorrected", "GPU 0 has no ecc.volatile_uncorrected"),
        ({"gpus": "rtx-4090"}, "numa-swapped", "not on different NUMA nodes"),
        ({"gpus": "none"}, "gpu-lost", "the node has no GPU"),
        ({"gpus": "none"}, "power-capped", "the node has no GPU"),
        ({}, "efa-down", "the node has no EFA; give it nic_kind: efa"),
        ({"nics": 1}, "rdma-names-swapped", "fewer than two Mellanox NICs"),
        ({}, "imex-down", "give it nvlink_domain: 18"),
        ({}, "nfs-retransmissions", "give it nfs: /home"),
        ({"gpus": "t4", "nvlink_domain": 18}, "xid", "no NVSwitch connects these GPUs"),
        ({"cpufreq": "none"}, "governor-powersave", "the node has no cpufreq"),
        ({"gpus": "t4"}, "gdrdrv-missing", "the node has no module gdrdrv"),
        ({"gpus": "none"}, "fabric-manager-other", "the node has no GPU"),
        ({"gpus": "none"}, "process-leftover", "the node has no GPU"),
    ],
)
def test_a_machine_without_the_part_cannot_have_the_fault(
    said: dict[str, object], fault: str, words: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        node(**said, faults=fault)
    assert words in str(caught.value)


def test_faults_outside_of_the_hardware_are_set() -> None:
    assert node(faults="sshd-hang").sshd == "hangs"
    assert node(faults="slow").delay_s == 120
    assert node(faults={"clock-skew": {"seconds": -60}}).clock_offset_s == -60
    full = node(faults="disk-full", disk_mb=96)
    assert full.disk_mb == 96
    for described in (full, node(faults="python-missing")):
        (command,) = described.boot
        assert command.startswith("[ -d /run/nodevet-sim ] && ")
        assert subprocess.run(["sh", "-n", "-c", command]).returncode == 0
    assert "nvidia-persistenced.service" not in node(faults="persistence-off").services


def test_the_reverts_on_boot_fault_installs_a_unit_on_the_node(tmp_path: Path) -> None:
    described = node(faults={"reverts-on-boot": {"watts": 500}})
    assert "site-power.service" in described.services
    unit = str(described.root_files["/etc/systemd/system/site-power.service"])
    assert "After=multi-user.target" in unit
    assert "ExecStart=/bin/sh /etc/site-power.sh" in unit
    script = str(described.root_files["/etc/site-power.sh"])
    assert "echo powersave" in script and script.count("-pl 500") == 8
    assert subprocess.run(["sh", "-n", "-c", script]).returncode == 0
    now = described.files["sys/devices/system/cpu/cpufreq/policy0/scaling_governor"]
    assert now == "performance\n"


def test_the_kernel_log_is_as_the_driver_prints_it() -> None:
    told = [line.text for line in node(faults={"xid-79": {"gpu": 0}}).kernel_log]
    xid = "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert f"NVRM: Xid (PCI:0000:19:00): {xid}" in told
    (line,) = [each for each in node(faults={"xid": {"code": 94}}).kernel_log if "Xid" in each.text]
    assert line.text.startswith("NVRM: Xid (PCI:0000:5d:00): 94, ")
    told = [each.text for each in node(faults="aer-errors").kernel_log]
    assert told[0].startswith("pcieport 0000:5b:01.0: AER: Corrected error")
    assert node(faults="mce").kernel_log[0].level == 0


def test_fault_counters_have_the_requested_counts(read: Read) -> None:
    faults = [{"ecc-uncorrected": {"count": 3}}, "row-remap-pending", {"aer-errors": {"count": 7}}]
    found = read(node(faults=faults))
    gpu = found[Gpus].data.gpus[3]
    assert (gpu.ecc.volatile_uncorrected, gpu.ecc.aggregate_dram_uncorrected) == (3, 3)
    assert (gpu.remapping.pending, gpu.remapping.uncorrected) == (True, 1)
    assert (gpu.recovery_action, gpu.pcie_replay_counter) == ("GPU_RESET", 7)
    (function,) = [each for each in found[Pci].data.functions if each.address == gpu.bus_id]
    assert (function.aer.correctable, function.aer.kinds) == (7, {"RxErr": 7})
    other = found[Gpus].data.gpus[2]
    assert (other.ecc.volatile_uncorrected, other.remapping.pending) == (0, False)


def test_a_fault_without_a_gpu_number_hits_the_last_gpu_of_a_small_node() -> None:
    state = values(node(gpus={"profile": "t4", "count": 2}, faults="pcie-width").state or "")
    assert [of_gpu(state, gpu, "pcie_width") for gpu in (0, 1)] == ["8", "4"]


def test_every_fault_is_documented() -> None:
    for name in FAULTS:
        assert summary(name).endswith("."), name
        for field in FAULTS[name].params.model_fields:
            assert f"`{field}`" in describe(name), (name, field)


def test_combining_no_faults_gives_an_empty_patch() -> None:
    patch = combine(())
    assert not any((patch.files, patch.state, patch.node, patch.gone, patch.log, patch.boot))
    with pytest.raises(FaultError, match="has no GPU"):
        Healthy({}, {}, {}).gpu(None)


def test_the_shipped_scenarios_have_every_fault() -> None:
    from nodevet_sim.scenario import find

    every = load_scenario(find("faults")).nodes
    used = {name for spec in every.values() for fault in spec.part.faults for name in fault}
    assert used | OF_OTHER_TESTS == set(FAULTS)
    assert len(load_scenario(find("demo")).nodes) == 8
