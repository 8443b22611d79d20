"""What nodevet says of real machines: no false alarm, no false ok; what is wrong with one is known.

MANIFEST.md beside the captures says what can be asserted of each.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import captured_machines
import kernel_records
import live_machine
import pytest
from msgspec.structs import replace

from nodevet.evidence.core import Record
from nodevet.evidence.dcgm import Dcgm
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.kernel_log import KernelEvent, KernelLog
from nodevet.evidence.network import Network
from nodevet.evidence.nvme import Nvme
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.evidence.sections import sections
from nodevet.model import Verdict

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO / "docs"))

import captures  # noqa: E402  the script that writes the page

pytestmark = [
    pytest.mark.timeout(1500),  # the first test unpacks all captures
    pytest.mark.skipif(not captures.FOLDER.is_dir(), reason=f"no captures at {captures.FOLDER}"),
    pytest.mark.skipif(
        not live_machine.can_be_made(), reason="needs root and unshare, for mounts of its own"
    ),
]
EIGHT = [f"GPU {index}" for index in range(8)]
ONE_OF_EIGHT = {"gpu_count": [""]}  # a virtual machine with one GPU, or one GPU is in the file
NO_GPU = {"gpu_count": [""]}
ARRAYS = ["raid md11", "raid md4", "raid md4", "raid md6", "raid md7", "raid md9"]
"""md4 is inactive and has lost a disk; in procfs-fixtures md7, too."""
XID_56 = "node-bundle/x570-rtx3090-xid56/log/kernlog-nvidia.txt"


def pci(*addresses: str) -> list[str]:
    return [f"pci {address}.0" for address in addresses]


WRONG = {
    "copyleft/nvidia-smi-text/stas00-sram-uncorrectable.txt": {"ecc_errors": ["GPU 0"]},
    "dcgmi/gcm-diag-1.json": {
        "dcgm": ["dcgm diag Environment Variables", "dcgm diag Persistence Mode"]
    },
    "dcgmi/gcm-diag-2.json": {"dcgm": ["dcgm diag Persistence Mode"]},
    "dmesg/dcgm-kmsg-lines.txt": {"xid": pci("0000:00:16", "0000:2a:00")},
    "dmesg/gpud-nvlink5-matrix.txt": {"xid": pci("0000:04:00")},
    "dmesg/gpud-pstore-erst-sysrq.txt": {"kernel_faults": ["kernel oops"]},
    "dmesg/gpud-sxid-lines.txt": {
        "xid": [f"nvswitch 0000:{bus}:00.0" for bus in ("00", "05", "06", "07")]
    },
    "dmesg/gpud-xid-lines.txt": {
        "xid": [
            "",
            *pci(*(f"0000:{bus:02x}:00" for bus in (1, 2, 3, 4, 5, 0x18, 0x29))),
            *pci("0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00"),
        ]
    },
    "dmesg/gpud-xid119-a100.log": {"xid": pci("0000:9b:00")},
    "dmesg/imbue-h100-cluster-lines.txt": {"xid": pci("0000:0f:00")},
    "dmesg/nvsentinel-xid-sxid-lines.txt": {
        "xid": [
            *("nvswitch 0000:c3:00.0", "nvswitch 0004:00:00.0"),
            *pci("0000:00:08", "0000:01:00", "0000:3f:00", "0000:66:00", "0000:9b:00"),
            *pci("0003:00:00", "0008:01:00", "0018:01:00"),
        ]
    },
    "ib/gpud-sys-class-infiniband-h100.tar.gz": {"infiniband": ["port mlx5_1:1"]},
    "net/eks-ethtool-S-ens5.txt": {"network_link": ["interface ens5"]},
    "node-bundle/laptop-gtx850m-nodriver": {"gpu_count": [""]},  # no driver, so no /dev/nvidia0
    XID_56: {"xid": pci("0000:0a:00")},
    "nvidia-smi-text/azhpc-8xa100-460.txt": {"persistence_mode": EIGHT},
    "nvidia-smi-text/azurehc-8gpu-retired-bad.txt": {
        "retired_pages": [EIGHT[index] for index in (0, 1, 3, 5, 7)],
        "row_remapping": [EIGHT[index] for index in (1, 3, 5, 7)],  # retired pages that wait
    },
    "nvidia-smi-text/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": ONE_OF_EIGHT,
    "nvidia-smi-text/linux-x86_64__nvidia-h100-mig__590.48.01.txt": {
        **ONE_OF_EIGHT,
        "mig_mode": ["GPU 0"],
    },
    "nvidia-smi-text/linux-x86_64__nvidia-h200__590.48.01.txt": ONE_OF_EIGHT,
    "nvidia-smi-xml/k8s-a100.xml": ONE_OF_EIGHT,
    "nvidia-smi-xml/k8s-b200.xml": {"persistence_mode": EIGHT},
    "nvidia-smi-xml/k8s-mock-qx-gb200-fabric-degraded.xml": {"fabric": ["GPU 1"]},
    "nvidia-smi-xml/telegraf-a100-sxm4-v12.xml": {
        "gpu_count": [""],  # four are attached
        "mig_mode": ["GPU 0"],
        "persistence_mode": ["GPU 0"],
    },
    "nvidia-smi-xml/telegraf-tesla-t4.xml": {"persistence_mode": ["GPU 0"]},
    "nvlink/azurehc-nvlink-bad.txt": {"nvlink": ["GPU 0"]},
    **{
        f"sysfs/{name}": NO_GPU
        for name in (
            "ghw/linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d.tar.gz",
            "ghw/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d.tar.gz",
            "ghw/linux-amd64-accel.tar.gz",
            "ghw/linux-arm64-c288e0776090cd558ef793b2a4e61939.tar.gz",
            "hwloc/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2",
            "hwloc/40intel64-2g2n4c+pcilocality.tar.bz2",
            "nfd-pci-rootfs-1.tar.gz",
        )
    },
    # trees that were put together for tests of other programs, with broken arrays
    "sysfs/node_exporter-proc-ethtool.tar.gz": {
        "file_handles": ["limit threads"],
        "raid": [*ARRAYS, "zpool pool2", "zpool poolz1"],
    },
    "sysfs/node_exporter-sys.ttar": {
        "drive_health": ["drive sdl"],
        "memory_errors": ["memory controller mc0"],
    },
    "sysfs/procfs-fixtures.ttar": {
        "drive_health": ["drive sdc"],
        "gpu_count": [""],
        "raid": sorted([*ARRAYS, "raid md42", "raid md7"]),
    },
}


@pytest.fixture(scope="module")
def nodes() -> dict[str, captures.CapturedNode]:
    return {node.name: node for node in captures.captured()}


def failures(node: captures.CapturedNode) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in node.told(Verdict.FAIL):
        found.setdefault(finding.check, []).append(finding.subject.label)
    return {check: sorted(labels) for check, labels in found.items()}


def test_only_the_known_faults_of_captured_machines_fail(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    wrong = {
        name: {check: sorted(labels) for check, labels in checks.items()}
        for name, checks in WRONG.items()
    }
    assert {name: found for name, node in nodes.items() if (found := failures(node))} == wrong


def test_no_check_crashes_times_out_or_yields_nothing_on_a_capture(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    mute = ("said nothing", "failed:", "not done within")
    odd = [
        (name, finding.check, finding.why)
        for name, node in nodes.items()
        for finding in node.findings
        if any(word in finding.why for word in mute)
    ]
    assert odd == []


def test_every_captured_file_is_read_or_skipped_for_a_stated_reason() -> None:
    assert [name for name, why in captured_machines.left_out() if not why] == []


def data(nodes: dict[str, captures.CapturedNode], name: str, section: type) -> object:
    found = nodes[name].evidence[section]
    assert found.data is not None, found.why
    return found.data


def gpus(nodes: dict[str, captures.CapturedNode], name: str) -> tuple[Gpu, ...]:
    found = data(nodes, name, Gpus)
    assert isinstance(found, Gpus) and found.gpus is not None
    return found.gpus


def events(nodes: dict[str, captures.CapturedNode], name: str) -> tuple[KernelEvent, ...]:
    log = data(nodes, name, KernelLog)
    assert isinstance(log, KernelLog) and log.events is not None
    return log.events


def test_drives_are_as_the_manifest_says(nodes: dict[str, captures.CapturedNode]) -> None:
    rows = (captures.FOLDER / "MANIFEST.md").read_text(encoding="utf-8").split("\n")
    said = re.compile(
        r"critical_warning=(\d+) pct_used=(\d+) spare=(\d+)/(\d+) media_errors=(\d+) temp=(\d+)"
    )
    facts = {
        f"smart/{row.split('|')[1].strip()}": tuple(map(int, match.groups()))
        for row in rows
        if (match := said.search(row))
    }
    assert len(facts) > 40
    for name, fact in facts.items():
        nvme = data(nodes, name, Nvme)
        assert isinstance(nvme, Nvme) and nvme.controllers is not None
        (drive,) = nvme.controllers
        log = drive.health
        assert log is not None and log.tool == "smartctl"
        assert fact == (
            log.critical_warning,
            log.percentage_used,
            log.spare_percent,
            log.spare_threshold_percent,
            log.media_errors,
            log.temperature_c,
        ), name
        assert [each.verdict for each in nodes[name].findings] == [Verdict.OK], name


def test_a_drive_behind_a_raid_controller_is_judged_by_its_own_log(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    node = nodes["smart/scrutiny-smart-megaraid0.json"]
    volume, drive = sorted(node.findings, key=lambda each: each.subject.label, reverse=True)
    assert (volume.subject.label, volume.verdict) == ("drive sda", Verdict.NOT_APPLICABLE)
    assert (drive.subject.label, drive.verdict) == ("drive /dev/bus/0 megaraid,0", Verdict.OK)
    assert drive.details["model"] == "WD4000FYYX"


def test_the_rpc_history_after_an_xid_is_not_counted_as_events(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    (event,) = events(nodes, "dmesg/gpud-xid119-a100.log")
    assert (event.kind, event.code, event.bus_id, event.count) == ("xid", 119, "0000:9b:00.0", 5)


def test_xids_of_an_application_are_recorded_but_do_not_fail(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    name = "dmesg/gpud-xid13.iso.log"
    xids = [each for each in events(nodes, name) if each.kind == "xid"]
    assert [(each.code, each.bus_id, each.count) for each in xids] == [
        (13, "0000:38:00.0", 16),
        (43, "0000:38:00.0", 1),
    ]
    assert not failures(nodes[name])


def test_a_crash_leaves_a_record(nodes: dict[str, captures.CapturedNode]) -> None:
    log = data(nodes, "dmesg/gpud-pstore-erst-sysrq.txt", KernelLog)
    assert isinstance(log, KernelLog)
    assert [crash.path for crash in log.crashes or ()] == ["/sys/fs/pstore/dmesg-erst-1"]


def test_every_line_of_a_display_fault_is_counted(
    tmp_path: Path, nodes: dict[str, captures.CapturedNode]
) -> None:
    text = (captures.FOLDER / XID_56).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "NVRM: Xid" in line]
    assert len(lines) == 124
    (tmp_path / "dev").mkdir()
    records = kernel_records.to_records("\n".join(lines))
    (tmp_path / "dev/kmsg").write_text(records, encoding="utf-8")
    log = live_machine.evidence(tmp_path, ["kernel_log"])[KernelLog].data
    assert log is not None and log.events is not None
    (event,) = log.events
    assert (event.code, event.bus_id, event.count) == (56, "0000:0a:00.0", 124)
    found = data(nodes, XID_56, KernelLog)
    assert isinstance(found, KernelLog) and found.source == "journal"


def test_gpus_are_as_nvidia_smi_printed_them(nodes: dict[str, captures.CapturedNode]) -> None:
    eight = gpus(nodes, "nvidia-smi-text/azhpc-8xa100-460.txt")
    domains = (*range(1, 5), *range(0xB, 0xF))
    assert [gpu.bus_id for gpu in eight] == [f"{domain:04x}:00:00.0" for domain in domains]
    assert {gpu.memory_total_b for gpu in eight} == {40536 << 20}
    assert all(gpu.remapping and gpu.remapping.pending is False for gpu in eight)
    (h100,) = gpus(nodes, "nvidia-smi-text/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt")
    assert (h100.pcie_replay_counter, h100.pcie_generation, h100.pcie_width) == (9, 5, 16)
    assert h100.mig_current is False
    assert Counter(link.speed_mbps for link in h100.nvlinks or ()) == {26562: 18}
    titan = nodes["node-bundle/x99-titanx-driver352"]
    driver = data(nodes, titan.name, Gpus)
    assert isinstance(driver, Gpus) and driver.driver_version == "352.63"
    assert [gpu.pcie_replay_counter for gpu in driver.gpus or ()] == [0]
    (t4,) = gpus(nodes, "nvidia-smi-xml/k8s-t4.xml")
    assert t4.ecc and (t4.ecc.aggregate_dram_corrected, t4.ecc.volatile_dram_corrected) == (1, 0)
    assert (t4.pcie_width, t4.pcie_width_max) == (8, 16)
    h100s = gpus(nodes, "nvidia-smi-xml/k8s-h100.xml")
    assert sorted(gpu.pcie_replay_counter or 0 for gpu in h100s) == [
        *(106, 144, 145, 150, 158, 162, 172, 174)
    ]


def functions(nodes: dict[str, captures.CapturedNode], name: str) -> dict[str, PciFunction]:
    found = data(nodes, name, Pci)
    assert isinstance(found, Pci) and found.functions is not None
    return {each.address: each for each in found.functions}


def test_an_xe9680_is_as_an_independent_parser_reads_it(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    name = "lspci/gpud-dell-xe9680-8xh100-vvv.txt"
    facts = captures.FOLDER / name.replace(".txt", ".facts.json")
    known = functions(nodes, name)
    compared = 0
    for fact in json.loads(facts.read_text(encoding="utf-8"))["devices"]:
        function = known.get(f"0000:{fact['bdf']}")
        if function is None or "sta" not in fact:
            continue
        speeds = tuple(float(fact[key][0].removesuffix("GT/s")) for key in ("sta", "cap"))
        widths = tuple(int(fact[key][1][1:]) for key in ("sta", "cap"))
        assert (function.link_gts, function.link_gts_max) == speeds, fact["bdf"]
        if 0 not in widths:
            assert (function.link_width, function.link_width_max) == widths, fact["bdf"]
        assert function.numa_node == fact.get("numa", -1), fact["bdf"]
        assert function.driver == fact.get("driver"), fact["bdf"]
        compared += 1
    assert compared > 60
    boards = {address[5:7]: each.numa_node for address, each in known.items() if each.kind == "gpu"}
    assert boards == {
        **dict.fromkeys(("19", "3b", "4c", "5d"), 0),
        **dict.fromkeys(("9b", "bb", "cb", "db"), 1),
    }
    assert sum(each.kind == "nvswitch" for each in known.values()) == 4


def test_a_workstation_whose_gpu_idles_in_a_narrow_slot(
    nodes: dict[str, captures.CapturedNode],
) -> None:
    gpu = functions(nodes, "node-bundle/x570-rtx3090-xid56")["0000:0a:00.0"]
    assert (gpu.link_gts, gpu.link_width) == (2.5, 8)
    assert (gpu.link_gts_max, gpu.link_width_max, gpu.numa_node) == (16.0, 16, -1)


def test_the_ports_of_an_h100_node(nodes: dict[str, captures.CapturedNode]) -> None:
    found = data(nodes, "ib/gpud-sys-class-infiniband-h100.tar.gz", Infiniband)
    assert isinstance(found, Infiniband) and found.devices is not None
    downs = {}
    for device in found.devices:
        for port in device.ports or ():
            counters = {each.name: each.value for each in port.counters or ()}
            downs[device.name] = counters.get("link_downed")
            assert (port.state, port.phys_state) == ("ACTIVE", "LinkUp")
    assert len(downs) == 9 and (downs["mlx5_0"], downs["mlx5_1"]) == (0, 255)


def test_statuses_of_diagnostics(nodes: dict[str, captures.CapturedNode]) -> None:
    for number, told in ((0, set()), (1, {"Fail", "Warn"}), (2, {"Warn"})):
        found = data(nodes, f"dcgmi/gcm-diag-{number}.json", Dcgm)
        assert isinstance(found, Dcgm) and found.diagnostics
        (diag,) = found.diagnostics
        assert {each.status for each in diag.not_passed or ()} == told
        assert diag.results == 9


KERNEL_FILES = ("cpu", "cpufreq", "edac", "infiniband", "memory", "network", "numa", "pci", "raid")


@pytest.mark.parametrize(
    "name",
    [
        "sysfs/hwloc/nvidia-dgx-gb10.tar.bz2",
        "sysfs/hwloc/32intel64-2p8co2t+8ve.tar.bz2",
        "sysfs/node_exporter-sys.ttar",
    ],
)
def test_a_tree_is_read_in_its_folder_as_on_a_live_machine(tmp_path: Path, name: str) -> None:
    captured_machines.unpack(captures.FOLDER / name, tmp_path)
    apart = captured_machines.probed(tmp_path)
    lived = live_machine.evidence(tmp_path, KERNEL_FILES)
    for section in KERNEL_FILES:
        record = sections()[section]
        assert (lived[record].status, without_rings(lived[record].data)) == (
            apart[record].status,
            without_rings(apart[record].data),
        ), section


def without_rings(record: Record | None) -> Record | None:
    """A driver reports ring sizes; no file holds them."""
    if not isinstance(record, Network) or record.interfaces is None:
        return record
    interfaces = tuple(
        replace(each, rings=None, errors={**each.errors, "rings": ""}) for each in record.interfaces
    )
    return replace(record, interfaces=interfaces)
