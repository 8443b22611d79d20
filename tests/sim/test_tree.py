"""A described machine, written and read back by the probe, is what was described."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.evidence.core import Section
from nodevet.evidence.sections import sections
from nodevet.remote.probe import messages
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
from nodevet_sim.cpu_files import mask
from nodevet_sim.pci_files import placed
from nodevet_sim.shipped import shipped_machine, with_devices
from nodevet_sim.tree import (
    SimulatedFunction,
    SimulatedLink,
    SimulatedMachine,
    SimulatedProcess,
    files,
    hgx,
    links,
    workstation,
    write,
)

SECTIONS = (host, pci, cpu, cpufreq, numa, memory, modules, processes)
TYPES = {name: Section[record] for name, record in sections().items()}


def read(machine: SimulatedMachine, into: Path, *collectors: Any) -> Any:
    """What the probe's collectors say of the machine; of one collector its data itself."""
    root = into.resolve() / "node"
    write(machine, root)
    found = []
    for collector in collectors:
        name = collector.__name__.rpartition(".")[2]
        text = messages.encode({"status": "ok", "data": collector.collect(str(root), {})})
        found.append(msgspec.json.decode(text, type=TYPES[name]).data)
    return found[0] if len(found) == 1 else found


def functions(found: Any, kind: str) -> dict[str, Any]:
    return {each.address: each for each in found.functions if each.kind == kind}


def test_a_healthy_hgx_node(tmp_path: Path) -> None:
    found = read(hgx("gpu001"), tmp_path, *SECTIONS)
    who, bus, cpus, clocks, nodes, ram, driver, jobs = found
    gpus = functions(bus, "gpu")
    assert list(gpus) == [f"0000:{bus_:02x}:00.0" for bus_ in (25, 59, 76, 93, 155, 187, 203, 219)]
    assert [gpu.numa_node for gpu in gpus.values()] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {(gpu.id, gpu.subsystem_vendor, gpu.subsystem_device) for gpu in gpus.values()} == {
        ("10de:2330", "10de", "16c1")
    }
    for gpu in gpus.values():
        assert (gpu.link_gts, gpu.link_width, gpu.driver) == (32.0, 16, "nvidia")
        assert gpu.local_cpulist == nodes.nodes[gpu.numa_node].cpulist
        assert len(gpu.upstream) == 3
        assert gpu.aer.correctable == gpu.aer.fatal == 0
    ports = functions(bus, "port")
    for gpu in gpus.values():
        assert {(ports[port].link_gts, ports[port].link_width) for port in gpu.upstream} == {
            (32.0, 16)
        }
    assert (len(functions(bus, "nic")), len(functions(bus, "nvme"))) == (8, 8)
    assert len(functions(bus, "nvswitch")) == 4
    assert (who.hostname, who.virtualization, who.architecture) == ("gpu001", "none", "x86_64")
    assert (cpus.sockets, cpus.cores, cpus.threads, cpus.smt_active) == (2, 16, 32, True)
    assert [each.governor for each in clocks.policies] == ["performance"]
    assert clocks.policies[0].cpus == cpus.online == "0-31"
    assert [list(node.distances) for node in nodes.nodes] == [[10, 21], [21, 10]]
    assert (nodes.numa_balancing, ram.thp_enabled, ram.swap_total_kb) == (0, "madvise", 0)
    assert {"nvidia", "nvidia_uvm", "nvidia_peermem"} <= set(driver.loaded)
    assert (driver.nvidia_version, driver.nvidia_flavour) == ("550.90.07", "open")
    assert {f"/dev/nvidia{minor}" for minor in range(8)} < {
        each.path for each in driver.device_nodes
    }
    assert (jobs.processes, jobs.complete) == ((), True)


def test_nothing_of_a_healthy_node_is_unreadable(tmp_path: Path) -> None:
    errors = [item.errors for item in read(hgx("n", gpus=1), tmp_path, cpu, numa, memory, pci)]
    assert errors == [{}] * 4
    assert set(read(hgx("n", gpus=1), tmp_path / "host", host).errors) <= {"clock_s", "asked_s"}


def test_a_workstation(tmp_path: Path) -> None:
    bus, clocks, driver = read(workstation("desk"), tmp_path, pci, cpufreq, modules)
    (gpu,) = functions(bus, "gpu").values()
    assert (gpu.id, gpu.numa_node, gpu.upstream) == ("10de:2684", -1, ("0000:00:01.1",))
    assert (gpu.link_gts, gpu.link_gts_max, gpu.link_width) == (2.5, 16.0, 16)
    assert clocks.policies[0].driver == "acpi-cpufreq" and clocks.policies[0].epp is None
    assert clocks.boost is True and clocks.no_turbo is None
    assert driver.nvidia_flavour == "proprietary"


def test_broken_variants(tmp_path: Path) -> None:
    healthy = hgx("gpu001", gpus=2, cores_per_socket=2)
    first, second = healthy.gpus
    narrow = replace(
        first, link=SimulatedLink(16.0, 8, 32.0, 16), aer=(("correctable", "RxErr", 7),)
    )
    dead = replace(second, revision="ff", link=SimulatedLink(None, None, 32.0, 16), driver=None)
    job = SimulatedProcess(9, "a) b", gpus=(0, 1), cpus_allowed="0-1", mems_allowed="1", uid=0)
    machine = replace(
        healthy,
        gpus=(narrow, dead),
        governor="powersave",
        numa_balancing=1,
        modules=("nouveau",),
        builtin=("nvidia",),
        nvidia_version=None,
        processes=(job,),
    )
    bus, clocks, nodes, driver, jobs = read(
        machine, tmp_path, pci, cpufreq, numa, modules, processes
    )
    gpus = functions(bus, "gpu")
    slow, lost = gpus[first.address], gpus[second.address]
    assert (slow.link_gts, slow.link_width, slow.link_width_max) == (16.0, 8, 16)
    assert (slow.aer.correctable, slow.aer.kinds) == (7, {"RxErr": 7})
    assert (lost.revision, lost.link_gts, lost.link_width, lost.driver) == ("ff", None, None, None)
    assert lost.why("link_gts") == "the kernel says 'Unknown'"
    assert lost.why("driver") == "no driver is bound"
    assert (clocks.policies[0].governor, nodes.numa_balancing) == ("powersave", 1)
    assert (driver.loaded, driver.builtin, driver.device_nodes) == (("nouveau",), ("nvidia",), ())
    (found,) = jobs.processes
    assert (found.pid, found.command, found.gpu_minors, found.mems_allowed) == (
        9,
        "a) b",
        (0, 1),
        "1",
    )


def test_a_kernel_without_cpufreq_and_a_function_without_pcie(tmp_path: Path) -> None:
    plain = SimulatedFunction("0000:00:05.0", "10de:1eb8", "030200", link=None, aer=None)
    machine = replace(workstation("vm"), cpufreq_driver=None, gpus=(plain,), smt=False)
    bus, cpus = read(machine, tmp_path, pci, cpu)
    gpu = functions(bus, "gpu")["0000:00:05.0"]
    assert (gpu.link_gts, gpu.why("link_gts"), gpu.aer.why("fatal")) == (None, "ENOENT", "ENOENT")
    assert (cpus.threads, cpus.cores, cpus.smt_control) == (16, 16, "notsupported")
    with pytest.raises(Absent):
        cpufreq.collect(str(tmp_path.resolve() / "node"), {})


def test_the_same_description_is_written_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(hgx("gpu001", gpus=1, cores_per_socket=1), tmp_path / name)
    one, two = (
        {
            str(place.relative_to(root)): place.is_file() and place.read_bytes()
            for place in root.rglob("*")
        }
        for root in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two and len(one) > 100


def test_numa_nodes_within_a_socket_and_shared_policies(tmp_path: Path) -> None:
    machine = hgx("n", cores_per_socket=4, numa_per_socket=2)
    machine = replace(machine, memory_only_nodes=1, cpufreq_per="core")
    nodes, bus, clocks, cpus = read(machine, tmp_path, numa, pci, cpufreq, cpu)
    assert [node.cpulist for node in nodes.nodes] == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
        "6-7,14-15",
        "",
    ]
    assert list(nodes.nodes[1].distances) == [12, 10, 21, 21, 21]
    assert [gpu.numa_node for gpu in functions(bus, "gpu").values()] == [0, 0, 1, 1, 2, 2, 3, 3]
    for gpu in functions(bus, "gpu").values():
        assert gpu.local_cpulist == nodes.nodes[gpu.numa_node].cpulist
    assert (clocks.policies[0].policies, clocks.policies[0].cpus) == ("0-7", "0-15")
    assert (cpus.packages, cpus.cores) == ({"0": "0-3,8-11", "1": "4-7,12-15"}, 8)


@pytest.mark.parametrize(
    "machine",
    [
        hgx("a", cores_per_socket=2),
        workstation("b"),
        shipped_machine("a100-sxm-80", name="c", cores=2),
        shipped_machine("t4", 64, name="d", sockets=1, cores=2, numa_per_socket=2),
        with_devices(hgx("e", gpus=2, cores_per_socket=2), 16, 0),
    ],
    ids=lambda machine: machine.hostname,
)
def test_every_symlink_has_a_target_inside_the_tree(
    machine: SimulatedMachine, tmp_path: Path
) -> None:
    root = tmp_path.resolve() / "node"
    write(machine, root)
    for path, target in links(machine).items():
        place = (root / path).parent / target
        assert place.resolve().is_relative_to(root), path
        assert place.exists(), path
    for path in files(machine):
        assert not any(path.startswith(f"{link}/") for link in links(machine)), path
    addresses = [function.address for function in machine.functions]
    assert len(addresses) == len(set(addresses)) == len(placed(machine))


def test_added_nics_and_nvme_drives_are_on_the_bus(tmp_path: Path) -> None:
    machine = with_devices(hgx("n", gpus=2, cores_per_socket=2), 5, 1)
    bus = read(machine, tmp_path, pci)
    nics, nvme = functions(bus, "nic"), functions(bus, "nvme")
    assert (len(nics), len(nvme)) == (5, 1)
    assert {nic.numa_node for nic in nics.values()} == {0, 1}
    assert all(nic.upstream for nic in nics.values())
    assert len(functions(bus, "gpu")) == 2


def test_masks_are_as_wide_as_the_kernel_prints_them() -> None:
    assert mask((), 4) == "0"
    assert mask((0, 1, 2, 3), 4) == "f"
    assert mask(range(32), 32) == "ffffffff"
    assert mask((63,), 64) == "80000000,00000000"
    assert mask((0, 64), 72) == "01,00000000,00000001"


def test_lscpu_and_lspci_read_the_tree_too(tmp_path: Path) -> None:
    """lscpu(1) and lspci(8) agree with what was described."""
    root = tmp_path.resolve() / "node"
    write(hgx("n", cores_per_socket=4, numa_per_socket=2), root)
    told = run("lscpu", "--sysroot", root, "--json")
    rows = {row["field"]: row["data"] for row in json.loads(told)["lscpu"]}
    assert (rows["Socket(s):"], rows["Core(s) per socket:"]) == ("2", "4")
    assert (rows["NUMA node(s):"], rows["NUMA node1 CPU(s):"]) == ("4", "2,3,10,11")
    told = run("lspci", "-A", "linux-sysfs", "-O", f"sysfs.path={root}/sys/bus/pci", "-n")
    assert len([row for row in told.splitlines() if "10de:2330" in row]) == 8


def run(*command: object) -> str:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, timeout=30
    ).stdout


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        write(workstation("desk"), tmp_path)
