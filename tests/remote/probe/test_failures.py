"""A file that is gone, unreadable or hostile costs its own value, which says why."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import files
from nodevet.remote.probe.collectors import (
    cpu,
    cpufreq,
    host,
    memory,
    modules,
    numa,
    pci,
    processes,
)
from nodevet.remote.probe.files import Absent
from nodevet_sim.machine import SimulatedMachine
from nodevet_sim.tree import write

Check = Callable[[str, dict[str, Any]], Any]

GPU = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0"
SYSTEM = "sys/devices/system"
CASES = [
    (host, "proc/sys/kernel/hostname", "hostname"),
    (host, "etc/machine-id", "machine_id"),
    (host, "proc/uptime", "uptime_s"),
    (host, "proc/sys/kernel/arch", "architecture"),
    (memory, "sys/kernel/mm/transparent_hugepage/enabled", "thp_enabled"),
    (numa, f"{SYSTEM}/node/node1/cpulist", "nodes.1.cpulist"),
    (numa, f"{SYSTEM}/node/node0/distance", "nodes.0.distances"),
    (numa, "proc/sys/kernel/numa_balancing", "numa_balancing"),
    (cpu, f"{SYSTEM}/cpu/smt/active", "smt_active"),
    (cpu, f"{SYSTEM}/cpu/smt/control", "smt_control"),
    (cpufreq, f"{SYSTEM}/cpu/intel_pstate/no_turbo", "no_turbo"),
    (modules, "sys/module/nvidia/version", "nvidia_version"),
    (modules, "proc/driver/nvidia/version", "nvidia_flavour"),
    (processes, "proc/4242/cgroup", "processes.0.cgroup"),
    *(
        (pci, f"{GPU}/{file}", f"functions.6.{field}")
        for file, field in (
            ("numa_node", "numa_node"),
            ("subsystem_device", "subsystem_device"),
            ("current_link_speed", "link_gts"),
            ("max_link_width", "link_width_max"),
            ("local_cpulist", "local_cpulist"),
            ("aer_dev_fatal", "aer.fatal"),
        )
    ),
]


def place_of(data: Any, path: str) -> tuple[Any, str]:
    *way, field = path.split(".")
    for part in way:
        data = data[int(part)] if part.isdigit() else data[part]
    return data, field


@pytest.fixture(scope="module")
def shared(machine: SimulatedMachine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that tests break and mend."""
    root = tmp_path_factory.mktemp("shared").resolve() / "node"
    write(machine, root)
    return root


@pytest.mark.parametrize("breakage", ["removed", "a directory", "empty", "not text", "too long"])
@pytest.mark.parametrize(("collector", "file", "field"), CASES, ids=[case[2] for case in CASES])
def test_a_broken_file_makes_only_its_value_unknown(
    shared: Path, check: Check, collector: Any, file: str, field: str, breakage: str
) -> None:
    place = shared / file
    content = place.read_bytes()
    before = collector.collect(str(shared), {})
    place.unlink()
    mask = place.parent / {"cpulist": "cpumap", "local_cpulist": "local_cpus"}.get(place.name, "")
    instead = mask.read_bytes() if mask.is_file() else None  # of a list that is missing
    if instead is not None:
        mask.unlink()
    try:
        if breakage == "a directory":
            place.mkdir()
        elif breakage == "empty":
            place.write_bytes(b"")
        elif breakage == "not text":
            place.write_bytes(b"\xff\x00[\x1b")
        elif breakage == "too long":
            place.write_bytes(b"1" * (files.LIMIT + 1))
        after = collector.collect(str(shared), {})
    finally:
        if place.is_dir():
            place.rmdir()
        place.write_bytes(content)
        if instead is not None:
            mask.write_bytes(instead)
    check(collector.__name__.rpartition(".")[2], after)
    record, name = place_of(after, field)
    old, _ = place_of(before, field)
    assert record[name] != old[name]
    if breakage in ("removed", "a directory", "too long"):
        assert record[name] is None
        assert record["errors"][name] in ("ENOENT", "not a regular file", "EFBIG")
    for each in (old, record):
        for gone in (name, *(("unit",) if name == "cgroup" else ())):
            each.pop(gone)
            each["errors"].pop(gone, None)
    assert after == before


def test_an_unreadable_topology_leaves_the_rest(node: Path, check: Check) -> None:
    (node / f"{SYSTEM}/cpu/cpu3/topology/physical_package_id").unlink()
    found = check("cpu", cpu.collect(str(node), {}))
    assert (found.online, found.threads) == ("0-7", 8)
    assert found.cores is found.sockets is found.packages is None
    assert found.why("cores") == "cpu3/topology: ENOENT"


def test_one_policy_that_differs_is_a_record_of_its_own(node: Path, check: Check) -> None:
    (node / f"{SYSTEM}/cpu/cpufreq/policy5/scaling_governor").write_text("powersave\n")
    (node / f"{SYSTEM}/cpu/cpufreq/policy6/scaling_governor").unlink()
    found = check("cpufreq", cpufreq.collect(str(node), {}))
    assert [(each.policies, each.governor) for each in found.policies] == [
        ("0-4,7", "performance"),
        ("5", "powersave"),
        ("6", None),
    ]


def test_a_policy_without_an_online_cpu_is_omitted(
    node: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Any = files.read

    def busy(root: str, path: str) -> str:
        if "/policy7/" in path:
            raise OSError(16, "busy", path)
        return str(read(root, path))

    monkeypatch.setattr(files, "read", busy)
    found = check("cpufreq", cpufreq.collect(str(node), {}))
    assert [each.policies for each in found.policies] == ["0-6"]


def test_d14_a_policy_that_affects_no_cpu_is_omitted_whatever_its_files_say(
    node: Path, check: Check
) -> None:
    """Before Linux 5.19 only affected_cpus of it is empty."""
    for number in (4, 5, 6, 7):
        place = node / f"{SYSTEM}/cpu/cpufreq/policy{number}"
        (place / "affected_cpus").write_text("\n")
        (place / "scaling_governor").write_text("powersave\n")
    found = check("cpufreq", cpufreq.collect(str(node), {}))
    assert [(each.policies, each.cpus) for each in found.policies] == [("0-3", "0-3")]
    assert found.inactive == "4-7"


def test_d13_a_virtual_function_names_its_physical_one(node: Path, check: Check) -> None:
    bus = node / "sys/bus/pci/devices"
    address = sorted(place.name for place in bus.iterdir())[-1]
    (bus / address / "physfn").symlink_to("../0000:3b:00.0")
    functions = check("pci", pci.collect(str(node), {})).functions
    assert {each.address: each.physfn for each in functions if each.physfn} == {
        address: "0000:3b:00.0"
    }
    assert not any("physfn" in each.errors for each in functions)


def test_a_pci_function_without_a_vendor_is_kept(node: Path, check: Check) -> None:
    (node / GPU / "vendor").unlink()
    found = check("pci", pci.collect(str(node), {}))
    (gpu,) = (each for each in found.functions if each.address == "0000:19:00.0")
    assert (gpu.vendor, gpu.why("vendor"), gpu.class_code) == (None, "ENOENT", "030200")


def test_a_function_that_fell_off_the_bus_has_revision_ff(node: Path, check: Check) -> None:
    (node / GPU / "config").write_bytes(b"\xff" * 64)
    found = check("pci", pci.collect(str(node), {}))
    revisions = {each.address: each.revision for each in found.functions if each.kind == "gpu"}
    assert revisions == {"0000:19:00.0": "ff", "0000:3b:00.0": "a1"}


@pytest.mark.parametrize(
    ("collector", "place"),
    [(pci, "sys/bus/pci"), (numa, f"{SYSTEM}/node"), (cpufreq, f"{SYSTEM}/cpu/cpufreq")],
)
def test_what_the_kernel_does_not_have_is_absent(node: Path, collector: Any, place: str) -> None:
    shutil.rmtree(node / place)
    with pytest.raises(Absent):
        collector.collect(str(node), {})


def test_links_are_followed_inside_the_root(node: Path, tmp_path: Path) -> None:
    secret = tmp_path.resolve() / "secret"
    secret.write_text("the real machine\n")
    (node / "etc/inside").write_text("inside\n")
    for name, target in (
        ("absolute", "/etc/inside"),
        ("above", "../../../../etc/inside"),
        ("outside", str(secret)),
        ("escape", "../../secret"),
        ("loop", "loop"),
    ):
        (node / "etc" / name).symlink_to(target)
    root = str(node)
    assert files.line(root, "/etc/absolute") == files.line(root, "/etc/above") == "inside"
    for name in ("outside", "escape"):
        with pytest.raises(FileNotFoundError):
            files.read(root, f"/etc/{name}")
    with pytest.raises(OSError, match="symbolic links"):
        files.read(root, "/etc/loop")


def test_a_fifo_in_a_captured_tree_does_not_block(node: Path) -> None:
    (node / "etc/machine-id").unlink()
    os.mkfifo(node / "etc/machine-id")
    assert host.collect(str(node), {})["errors"]["machine_id"] == "not a regular file"


def test_a_directory_with_too_many_entries_is_an_error(node: Path) -> None:
    for number in range(numa.LARGEST):
        (node / f"{SYSTEM}/node/node{number + 10}").mkdir()
    with pytest.raises(ValueError, match="more than 1024 entries"):
        numa.collect(str(node), {})
    with pytest.raises(ValueError, match="more than 5 entries"):
        files.names(str(node), f"/{SYSTEM}/node", 5)


def test_processes_that_nvml_names_or_that_hold_a_gpu_open(node: Path, check: Check) -> None:
    other = node / "proc/77"
    shutil.copytree(node / "proc/1", other, symlinks=True)
    gpus = [{"processes": [{"pid": 77}, {"pid": 99}]}, {"processes": None}]
    found = {"gpu": {"status": "ok", "data": {"gpus": gpus}}}
    shown = check("processes", processes.collect(str(node), {"found": found}))
    assert [(each.pid, each.gpu_minors) for each in shown.processes] == [(77, ()), (4242, (0,))]
    job = shown.processes[1]
    assert (job.command, job.uid, job.started_s) == ("python (train)", 1000, 3600.0)
    assert (job.cpus_allowed, job.mems_allowed) == ("0-3", "0")
    assert job.unit == "slurmstepd.scope"
    assert shown.complete


def test_a_process_whose_files_cannot_be_read_makes_the_list_incomplete(
    node: Path, check: Check
) -> None:
    shutil.rmtree(node / "proc/4242/fd")
    assert processes.collect(str(node), {}) == {
        "errors": {},
        "processes": [],
        "complete": False,
    }
    found = {"gpu": {"data": {"gpus": [{"processes": [{"pid": 4242}]}]}}}
    (job,) = check("processes", processes.collect(str(node), {"found": found})).processes
    assert (job.gpu_minors, job.why("gpu_minors")) == (None, "ENOENT")


def test_the_list_of_processes_is_incomplete_without_pid_1(node: Path) -> None:
    shutil.rmtree(node / "proc/1")
    assert processes.collect(str(node), {})["complete"] is False


def test_a_pid_namespace_hides_processes_unless_it_is_that_of_a_whole_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "FIRST_PID_NAMESPACE", "pid:[1]")
    assert not processes.sees_all("/", {1, 2})
    assert processes.sees_all("/", {1, 2}, whole_machine=True)
    assert not processes.sees_all("/", {2}, whole_machine=True)


def test_device_nodes_that_are_plain_files_are_reported_as_such(node: Path, check: Check) -> None:
    for folder in ("nvidia-caps", "nvidia-caps-imex-channels", "nvidia6"):
        (node / "dev" / folder).mkdir()
    (node / "dev/nvidia7").symlink_to("gone")
    nodes = {
        each.path: each for each in check("modules", modules.collect(str(node), {})).device_nodes
    }
    assert not {"/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels"} & set(nodes)
    assert nodes["/dev/nvidia6"].why("minor") == "not a character device"
    assert nodes["/dev/nvidia0"].why("major") == "not a character device"
    assert (nodes["/dev/nvidia0"].mode, nodes["/dev/nvidia0"].openable) == ("0666", True)
    assert nodes["/dev/nvidia7"].why("openable") == "ENOENT"


def test_mig_instances_are_reported_with_their_device_nodes(node: Path, check: Check) -> None:
    found = check("modules", modules.collect(str(node), {}))
    assert found.why("mig_capabilities") == "ENOENT"
    place = node / "proc/driver/nvidia/capabilities"
    (place / "mig").mkdir(parents=True)
    assert check("modules", modules.collect(str(node), {})).mig_capabilities == ()
    for name, text in {
        "gpu0/mig/gi1/access": "DeviceFileMinor: 30\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
        "gpu0/mig/gi1/ci0/access": "DeviceFileMinor: 31\n",
        "gpu10/mig/gi2/access": "DeviceFileMode: 256\n",
        "gpu2/other/access": "DeviceFileMinor: 99\n",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (node / "dev/nvidia-caps").mkdir()
    (node / "dev/nvidia-caps/nvidia-cap30").touch(mode=0o444)
    found = check("modules", modules.collect(str(node), {}))
    told = [(each.name, each.minor) for each in found.mig_capabilities]
    assert told == [("gpu0/gi1", 30), ("gpu0/gi1/ci0", 31), ("gpu10/gi2", None)]
    assert found.mig_capabilities[2].why("minor") == "no DeviceFileMinor"
    (cap,) = (each for each in found.device_nodes if "caps/" in each.path)
    assert (cap.path, cap.mode, cap.openable) == ("/dev/nvidia-caps/nvidia-cap30", "0444", True)


def test_a_driver_built_into_the_kernel_is_distinguished_from_a_module(node: Path) -> None:
    (node / "sys/module/nouveau").mkdir()
    found = modules.collect(str(node), {})
    assert found["builtin"] == ["nouveau"] and "nouveau" not in found["loaded"]


def test_every_built_in_module_is_reported(node: Path) -> None:
    (node / "sys/module/xe").mkdir()
    (node / "sys/module/ib_core").mkdir()
    found = modules.collect(str(node), {})
    assert found["builtin"] == ["ib_core", "xe"]


def test_a_built_in_module_without_parameters_is_in_the_kernel_s_list(node: Path) -> None:
    (node / "sys/module/xe").mkdir()
    (node / "proc/sys/kernel").mkdir(parents=True, exist_ok=True)
    (node / "proc/sys/kernel/osrelease").write_text("6.1.0-9-amd64\n")
    listed = node / "lib/modules/6.1.0-9-amd64/modules.builtin"
    listed.parent.mkdir(parents=True)
    assert modules.collect(str(node), {})["builtin"] == ["xe"], "no list"
    listed.write_text("kernel/fs/ext4/ext4.ko\nkernel/drivers/net/dummy-x.ko\nkernel/x/nvidia.ko\n")
    found = modules.collect(str(node), {})
    assert found["builtin"] == ["dummy_x", "ext4", "xe"], "nvidia is loaded"
    listed.unlink()
    listed.mkdir()
    found = modules.collect(str(node), {})
    assert found["builtin"] is None and found["errors"]["builtin"]
    (node / "proc/sys/kernel/osrelease").write_text("../../etc\n")
    assert modules.collect(str(node), {})["builtin"] == ["xe"]


@pytest.mark.parametrize(
    ("dmi", "flags", "expected"),
    [
        (("Dell Inc.", "PowerEdge XE9680"), "fpu", "none"),
        (("QEMU", "Standard PC"), "fpu", "qemu"),
        (("Amazon EC2", "p5.48xlarge"), "fpu hypervisor", "amazon"),
        (("Amazon EC2", "m7i.metal-24xl"), "fpu", "none"),
        (("Google", "Google Compute Engine"), "fpu hypervisor", "google"),
        (("Xyz", "Xyz"), "fpu hypervisor", "vm"),
    ],
)
def test_virtualization(node: Path, dmi: tuple[str, str], flags: str, expected: str) -> None:
    for name, text in zip(("sys_vendor", "product_name"), dmi, strict=True):
        (node / "sys/class/dmi/id" / name).write_text(f"{text}\n")
    (node / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert host.collect(str(node), {})["virtualization"] == expected
    (node / ".dockerenv").touch()
    assert host.collect(str(node), {})["virtualization"] == "container"
    assert host.collect(str(node), {"whole_machine": True})["virtualization"] == expected


def test_a_guest_is_named_by_its_clock_where_dmi_does_not(node: Path) -> None:
    (node / "proc/cpuinfo").write_text("flags\t\t: fpu hypervisor\n")
    clocks = node / "sys/devices/system/clocksource/clocksource0/available_clocksource"
    clocks.parent.mkdir(parents=True, exist_ok=True)
    clocks.write_text("tsc kvm-clock \n")
    assert host.collect(str(node), {})["virtualization"] == "kvm"


def test_dockerenv_in_the_first_pid_namespace_is_not_a_container(node: Path) -> None:
    (node / ".dockerenv").touch()
    for pid in ("1", "self"):
        (node / "proc" / pid / "ns").mkdir(parents=True)
        (node / "proc" / pid / "ns/mnt").symlink_to("mnt:[4026531841]")
        (node / "proc" / pid / "ns/pid").symlink_to(host.FIRST_PID_NAMESPACE)
    assert host.collect(str(node), {})["virtualization"] == "none"
    (node / "proc/self/ns/pid").unlink()
    (node / "proc/self/ns/pid").symlink_to("pid:[4026532000]")
    assert host.collect(str(node), {})["virtualization"] == "container"


def test_virtualization_without_any_sign_is_not_guessed(node: Path) -> None:
    (node / "proc/cpuinfo").unlink()
    shutil.rmtree(node / "sys/class/dmi")
    found = host.collect(str(node), {})
    assert (found["virtualization"], found["errors"]["virtualization"]) == (None, "ENOENT")
