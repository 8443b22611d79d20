"""A described machine as files and links: its hardware, and, written out, all that the probe reads.

`files` and `links` are the hardware: /sys and the parts of /proc that come with it.
`write` and `write_out` add what a node's own kernel and disk say: who it is, its processes, its
device nodes. These are plain files, so that no privilege is needed.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet_sim import (
    cpu_files,
    host_files,
    modules,
    network_files,
    pci_files,
    pci_setting_files,
    storage_files,
)
from nodevet_sim.cpu_files import Content, Files, Links, lines
from nodevet_sim.machine import (
    SimulatedFunction,
    SimulatedLink,
    SimulatedMachine,
    SimulatedProcess,
    hgx,
    system_serial,
    system_uuid,
    workstation,
)

__all__ = [
    "SimulatedFunction",
    "SimulatedLink",
    "SimulatedMachine",
    "SimulatedProcess",
    "files",
    "hgx",
    "links",
    "workstation",
    "write",
    "write_out",
]

DMI = "sys/devices/virtual/dmi/id"
VERSIONS = {"gdrdrv": "2.4.1", "nvidia_fs": "2.19.5"}  # of modules for GPUDirect
NVFS = "proc/driver/nvidia-fs/stats"
PLACES = ("sys/bus/pci/devices", "sys/module", "proc", "dev")


def files(machine: SimulatedMachine) -> dict[str, Content]:
    """The hardware's kernel files, by path without a leading slash."""
    parts = (
        cpu_files.files,
        pci_files.files,
        host_files.files,
        storage_files.files,
        pci_setting_files.files,
        network_files.files,
        _dmi,
        _modules,
        _cmdline,
    )
    return dict(chain.from_iterable(part(machine) for part in parts))


def links(machine: SimulatedMachine) -> dict[str, str]:
    """The hardware's symbolic links, path -> target as readlink(2) gives it."""
    parts = (
        cpu_files.links,
        pci_files.links,
        pci_setting_files.links,
        storage_files.links,
        network_files.links,
    )
    found = dict(chain.from_iterable(part(machine) for part in parts))
    return {**found, "sys/class/dmi/id": "../../devices/virtual/dmi/id"}


def write(machine: SimulatedMachine, into: Path) -> None:
    """Write the machine's files under `into`, which must be empty or not exist yet.

    Raises FileExistsError if it is not.
    """
    write_out(machine, files(machine), links(machine), machine.nodes, into)


def write_out(
    machine: SimulatedMachine,
    hardware: Mapping[str, Content],
    targets: Mapping[str, str],
    nodes: tuple[str, ...],
    into: Path,
) -> None:
    """Write this hardware, and what else the machine is, under `into`.

    Raises FileExistsError like `write`.
    """
    content = {
        **dict(chain(_host(machine), _processes(machine), storage_files.mount_files(machine))),
        **hardware,
    }
    targets = {**targets, **dict(_process_links(machine))}
    if into.exists() and any(into.iterdir()):
        raise FileExistsError(f"{into} is not empty")
    devices = [path.lstrip("/") for path in nodes]
    folders = {path.rsplit("/", 1)[0] for path in (*content, *targets, *devices)}
    for folder in sorted(folders.union(PLACES)):
        (into / folder).mkdir(parents=True, exist_ok=True)
    for path, text in content.items():
        (into / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    for path, target in targets.items():
        (into / path).symlink_to(target)
    for path in devices:
        (into / path).touch()
        (into / path).chmod(0o666)


def _host(machine: SimulatedMachine) -> Files:
    yield "etc/machine-id", f"{machine.machine_id}\n"
    yield (
        "etc/os-release",
        'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n',
    )
    yield "proc/uptime", f"{machine.uptime_s:.2f} {machine.uptime_s:.2f}\n"
    kernel = {
        "hostname": machine.hostname,
        "osrelease": machine.kernel,
        "arch": machine.architecture,
        "random/boot_id": machine.boot_id,
    }
    yield from lines("proc/sys/kernel", kernel)


def _cmdline(machine: SimulatedMachine) -> Files:
    yield "proc/cmdline", f"{machine.cmdline}\n"


def _dmi(machine: SimulatedMachine) -> Files:
    vendor, product = machine.dmi
    known = {"sys_vendor": vendor, "product_name": product, "chassis_type": 23}
    ids = {
        "product_uuid": system_uuid(machine.hostname),
        "product_serial": system_serial(machine.hostname),
        "board_serial": f"{system_serial(machine.hostname)}B",
    }
    yield from lines(DMI, {**known, **ids, "board_vendor": vendor, "bios_vendor": vendor})


def _modules(machine: SimulatedMachine) -> Files:
    yield "proc/modules", modules.rows(machine.modules)
    for name in (*machine.modules, *machine.builtin):
        yield f"sys/module/{name}/uevent", ""
    for name in machine.modules:
        yield f"sys/module/{name}/initstate", "live\n"
    for name, version in VERSIONS.items():
        if name in machine.modules:
            yield f"sys/module/{name}/version", f"{version}\n"
    if "nvidia_fs" in machine.modules:
        yield (
            NVFS,
            "GDS Version: 1.9.0.20 \nNVFS statistics(ver: 4.0)\nActive Shadow-Buffer (MiB): 0\n",
        )
    if machine.nvidia_version is not None:
        yield "sys/module/nvidia/version", f"{machine.nvidia_version}\n"
        yield "proc/driver/nvidia/version", _driver_version(machine)


def _driver_version(machine: SimulatedMachine) -> str:
    """/proc/driver/nvidia/version, as nvidia.ko prints it."""
    kind = (
        f"Open Kernel Module for {machine.architecture}"
        if machine.nvidia_flavour == "open"
        else f"{machine.architecture} Kernel Module"
    )
    return (
        f"NVRM version: NVIDIA UNIX {kind}  {machine.nvidia_version}  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )


def _first(machine: SimulatedMachine) -> SimulatedProcess:
    return SimulatedProcess(1, "systemd", (), uid=0, cgroup="/init.scope", started_s=0.5)


def _processes(machine: SimulatedMachine) -> Files:
    for process in (_first(machine), *machine.processes):
        place = f"proc/{process.pid}"
        cpus = process.cpus_allowed or format_cpulist(machine.cpus)
        mems = process.mems_allowed or format_cpulist(machine.numa_nodes)
        after = ["S", "1", *["0"] * 17, str(round(process.started_s * 100)), "0", "0"]
        yield f"{place}/stat", f"{process.pid} ({process.command}) {' '.join(after)}\n"
        yield (
            f"{place}/status",
            f"Name:\t{process.command}\nUid:\t{process.uid}\t{process.uid}\t{process.uid}\t"
            f"{process.uid}\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n",
        )
        yield f"{place}/cgroup", f"0::{process.cgroup}\n"


def _process_links(machine: SimulatedMachine) -> Links:
    for process in (_first(machine), *machine.processes):
        opened = ("/dev/null", *(f"/dev/nvidia{minor}" for minor in process.gpus))
        for descriptor, target in enumerate(opened):
            yield f"proc/{process.pid}/fd/{descriptor}", target
