"""Captured machines read as their maintainers' own tools read them.

Expected: lstopo's output for hwloc's trees, lscpu's for util-linux's, node_exporter's
own metrics for its fixtures, and what the manifest says of the others.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import cpu, cpufreq, host, memory, modules, numa, pci
from nodevet.remote.probe.files import Absent

Capture = Callable[[str], str]
Check = Callable[[str, dict[str, Any]], Any]

HWLOC = "sysfs/hwloc/"
GHW = "sysfs/ghw/linux-amd64-"
UTIL_LINUX = "copyleft/sysfs/util-linux/"
VE = HWLOC + "32intel64-2p8co2t+8ve.tar.bz2"
NODE_EXPORTER = "sysfs/node_exporter-sys.ttar"


@pytest.mark.parametrize(
    ("name", "cpulists", "memory_kb", "distances"),
    [
        (
            HWLOC + "16amd64-8n2c.tar.bz2",
            [f"{2 * node}-{2 * node + 1}" for node in range(8)],
            [8386704, *[8388608] * 7],
            [[10 if one == other else 20 for other in range(8)] for one in range(8)],
        ),
        (VE, ["0-7,16-23", "8-15,24-31"], [47925628, 49519964], [[10, 21], [21, 10]]),
        (HWLOC + "nvidia-dgx-gb10.tar.bz2", ["0-19"], [125508468], [[10]]),
    ],
    ids=["opteron", "skylake", "gb10"],
)
def test_numa_as_lstopo_prints_it(
    capture: Capture,
    check: Check,
    name: str,
    cpulists: list[str],
    memory_kb: list[int],
    distances: list[list[int]],
) -> None:
    found = check("numa", numa.collect(capture(name), {}))
    assert [node.id for node in found.nodes] == list(range(len(cpulists)))
    assert [node.cpulist for node in found.nodes] == cpulists
    assert [node.memory_total_kb for node in found.nodes] == memory_kb
    assert [list(node.distances) for node in found.nodes] == distances


def test_numa_of_a_kernel_that_prints_no_cpulist(capture: Capture, check: Check) -> None:
    found = check("numa", numa.collect(capture(HWLOC + "96em64t-4no4pa3ca2co.tar.bz2"), {}))
    assert found.online is None and found.errors["online"] == "ENOENT"
    assert [node.memory_total_kb for node in found.nodes] == [132101504, *[132124160] * 3]
    assert [(node.cpulist, node.why("cpulist")) for node in found.nodes] == [(None, "ENOENT")] * 4


@pytest.mark.parametrize(
    ("name", "online", "cores", "sockets", "model"),
    [
        (VE, "0-31", 16, 2, "Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz"),
        (HWLOC + "16amd64-8n2c.tar.bz2", "0-15", 16, 8, "Dual Core AMD Opteron(tm) Processor 865"),
        (HWLOC + "nvidia-dgx-gb10.tar.bz2", "0-19", 20, 1, None),
        (
            HWLOC + "20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2",
            "0-19",
            14,
            1,
            "13th Gen Intel(R) Core(TM) i7-1370P",
        ),
        (
            UTIL_LINUX + "x86_64-64cpu.tar.gz",
            "0-63",
            32,
            4,
            "Intel(R) Xeon(R) CPU           X7550  @ 2.00GHz",
        ),
        (
            UTIL_LINUX + "x86_64-64cpu-linux6.2.tar.gz",
            "0-7",
            4,
            1,
            "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz",
        ),
        (
            UTIL_LINUX + "x86_64-dell_e4310.tar.gz",
            "0-3",
            2,
            1,
            "Intel(R) Core(TM) i5 CPU       M 560  @ 2.67GHz",
        ),
        (
            UTIL_LINUX + "vbox-win.tar.gz",
            "0-1",
            2,
            1,
            "Intel(R) Core(TM) i5-3317U CPU @ 1.70GHz",
        ),
    ],
    ids=["skylake", "opteron", "gb10", "hybrid", "nehalem", "tiger", "e4310", "vbox"],
)
def test_cpu_topology_as_lscpu_and_lstopo_print_it(
    capture: Capture,
    check: Check,
    name: str,
    online: str,
    cores: int,
    sockets: int,
    model: str | None,
) -> None:
    found = check("cpu", cpu.collect(capture(name), {}))
    assert (found.online, found.cores, found.sockets) == (online, cores, sockets)
    assert found.model_name == model
    assert found.threads == int(online.split("-")[1]) + 1
    assert len(found.packages) == sockets


def test_cpu_packages_of_an_arm_machine_keep_the_firmware_id(
    capture: Capture, check: Check
) -> None:
    found = check("cpu", cpu.collect(capture(HWLOC + "nvidia-dgx-gb10.tar.bz2"), {}))
    assert found.packages == {"36": "0-19"}
    assert found.vendor == "0x41"
    assert found.why("model_name") == "no model name in /proc/cpuinfo"


@pytest.mark.parametrize(
    ("name", "lowest_khz", "highest_khz"),
    [
        ("x86_64-64cpu-linux6.2", 400000, 4700000),
        ("x86_64-dell_e4310", None, 2667000),
        ("vbox-win", 1600000, 3800000),
        ("x86_64-64cpu", None, 1996000),
    ],
)
def test_cpufreq_limits_as_lscpu_prints_them(
    capture: Capture, check: Check, name: str, lowest_khz: int | None, highest_khz: int
) -> None:
    found = check("cpufreq", cpufreq.collect(capture(f"{UTIL_LINUX}{name}.tar.gz"), {}))
    assert {each.cpuinfo_max_khz for each in found.policies} == {highest_khz}
    if lowest_khz is not None:
        assert {each.cpuinfo_min_khz for each in found.policies} == {lowest_khz}


def test_cpufreq_of_a_hybrid_cpu_is_folded_by_kind_of_core(capture: Capture, check: Check) -> None:
    name = HWLOC + "20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2"
    found = check("cpufreq", cpufreq.collect(capture(name), {}))
    shown = {each.policies: (each.cpus, each.governor, each.driver) for each in found.policies}
    assert shown == {
        cpus: (cpus, "powersave", "intel_pstate") for cpus in ("0-3,6-7,10-11", "4-5,8-9", "12-19")
    }
    assert found.intel_pstate == "active" and found.no_turbo is False


def test_cpufreq_is_absent_where_the_kernel_offers_none(capture: Capture) -> None:
    with pytest.raises(Absent, match="no cpufreq"):
        cpufreq.collect(capture(HWLOC + "16amd64-8n2c.tar.bz2"), {})


def test_cpufreq_of_a_tree_without_cpus_is_not_absent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cpufreq.collect(str(tmp_path), {})


def test_pci_links_and_path_as_lstopo_prints_them(capture: Capture, check: Check) -> None:
    found = check("pci", pci.collect(capture(VE), {}))
    by_address = {each.address: each for each in found.functions}
    nics = {address: each for address, each in by_address.items() if each.kind == "nic"}
    assert {address: (each.id, each.class_code) for address, each in nics.items()} == {
        "0000:1a:00.0": ("15b3:1013", "020700"),
        "0000:3e:00.0": ("15b3:1013", "020700"),
        "0000:60:00.0": ("8086:37d2", "020000"),
        "0000:60:00.1": ("8086:37d2", "020000"),
    }
    assert {each.numa_node for each in nics.values()} == {0}
    card, onboard = nics["0000:1a:00.0"], nics["0000:60:00.0"]
    assert (card.link_gts, card.link_width) == (8.0, 16)  # 15.75 GB/s
    assert (onboard.link_gts, onboard.link_width) == (2.5, 1)  # 0.25 GB/s
    assert card.upstream == ("0000:19:04.0", "0000:18:00.0", "0000:17:00.0")
    assert onboard.upstream == ("0000:5f:03.0", "0000:5e:00.0", "0000:5d:02.0")
    for port in (*card.upstream, *onboard.upstream[1:]):
        assert by_address[port].kind == "port"
    lost = by_address["0000:5f:03.0"]  # in the path, but not in the captured tree
    assert (lost.class_code, lost.why("class_code")) == (None, "ENOENT")
    assert not any(each.vendor == "1bcf" for each in found.functions)  # co-processors


def test_pci_finds_the_nvidia_function_of_a_guest(capture: Capture, check: Check) -> None:
    found = check("pci", pci.collect(capture(GHW + "accel-nvidia.tar.gz"), {}))
    (gpu,) = (each for each in found.functions if each.kind == "gpu")
    assert (gpu.address, gpu.id, gpu.revision) == ("0000:06:00.0", "10de:15f8", "a1")
    assert (gpu.numa_node, gpu.local_cpulist, gpu.upstream) == (-1, "0-7", ("0000:00:01.5",))
    assert gpu.why("link_gts") == "ENOENT"


def test_pci_tree_without_device_paths_says_so(capture: Capture, check: Check) -> None:
    found = check("pci", pci.collect(capture("sysfs/nfd-pci-rootfs-1.tar.gz"), {}))
    assert found.functions
    for each in found.functions:
        assert each.upstream == ()
        assert each.why("upstream") == "no host bridge in the device's path"


def metrics(captures: Path, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """One metric of node_exporter's expected output, by its labels."""
    text = (captures / "sysfs/node_exporter-e2e-output.txt").read_text(encoding="utf-8")
    rows = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.M)
    assert rows, name
    return {
        frozenset(re.findall(r'(\w+)="([^"]*)"', labels)): float(value) for labels, value in rows
    }


def test_pci_as_node_exporter_exports_it(captures: Path, capture: Capture, check: Check) -> None:
    found = check("pci", pci.collect(capture(NODE_EXPORTER), {}))
    functions = {each.address: each for each in found.functions}
    for name, field, unit in (
        ("current_link_transfers_per_second", "link_gts", 1e9),
        ("max_link_transfers_per_second", "link_gts_max", 1e9),
        ("current_link_width", "link_width", 1),
        ("max_link_width", "link_width_max", 1),
    ):
        expected = metrics(captures, f"node_pcidevice_{name}")
        assert len(expected) == 3
        for labels, value in expected.items():
            place = dict(labels)
            address = "{segment}:{bus}:{device}.{function}".format(**place)
            assert getattr(functions[address], field) * unit == value, (name, address)
    for labels in metrics(captures, "node_pcidevice_info"):
        place = dict(labels)
        each = functions["{segment}:{bus}:{device}.{function}".format(**place)]
        assert f"0x{each.class_code}" == place["class_id"]
        assert each.id == f"{place['vendor_id'][2:]}:{place['device_id'][2:]}"
        assert f"0x{each.subsystem_vendor}" == place["subsystem_vendor_id"]
        assert f"0x{each.subsystem_device}" == place["subsystem_device_id"]
        assert f"0x{each.revision}" == place["revision"]


def test_numa_and_governors_as_node_exporter_exports_them(
    captures: Path, capture: Capture, check: Check
) -> None:
    root = capture(NODE_EXPORTER)
    nodes = {str(node.id): node for node in check("numa", numa.collect(root, {})).nodes}
    total = metrics(captures, "node_memory_numa_MemTotal")
    free = metrics(captures, "node_memory_numa_MemFree")
    assert len(total) == len(nodes) == 3
    for labels, value in total.items():
        node = nodes[dict(labels)["node"]]
        assert node.memory_total_kb * 1024 == value
        assert node.memory_free_kb * 1024 == free[labels]
    policies = check("cpufreq", cpufreq.collect(root, {})).policies
    governors = metrics(captures, "node_cpu_scaling_governor")
    chosen = {dict(labels)["governor"] for labels, value in governors.items() if value == 1}
    assert {each.governor for each in policies} == chosen == {"powersave"}
    assert [each.policies for each in policies] == ["0-1", "2-3"]
    highest = metrics(captures, "node_cpu_scaling_frequency_max_hertz")
    assert {each.scaling_max_khz * 1000.0 for each in policies} == set(highest.values())


def test_modules_and_driver_of_a_workstation(captures: Path, check: Check) -> None:
    root = str((captures / "node-bundle/x570-rtx3090-xid56/root").resolve())
    found = check("modules", modules.collect(root, {}))
    assert {"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"} <= set(found.loaded)
    assert "nouveau" not in found.loaded
    assert found.nvidia_flavour == "proprietary"
    assert check("memory", memory.collect(root, {})).total_kb == 32794844
    assert check("memory", memory.collect(root, {})).thp_enabled == "madvise"
    assert check("host", host.collect(root, {})).errors["architecture"] == "ENOENT"
