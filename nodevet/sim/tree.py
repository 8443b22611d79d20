"""Writes a described machine as the files that the probe reads: sys, proc, dev, etc.

The layout is the kernel's: PCI functions lie under sys/devices/pci<domain>:<bus>
below the ports above them, and sys/bus/pci/devices holds symbolic links to them.
Device nodes are plain files, so that no privilege is needed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodevet.probe.cpulist import format_cpulist
from nodevet.sim.machine import Function, Link, Machine, Process, hgx, workstation

__all__ = ["Function", "Link", "Machine", "Process", "hgx", "workstation", "write"]

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
THP = "sys/kernel/mm/transparent_hugepage"
AER_FILES = {
    "correctable": ("TOTAL_ERR_COR", ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout")),
    "nonfatal": ("TOTAL_ERR_NONFATAL", ("DLP", "SDES", "TLP", "CmpltTO", "UnsupReq")),
    "fatal": ("TOTAL_ERR_FATAL", ("DLP", "SDES", "TLP", "CmpltTO", "UnsupReq")),
}
PLACES = ("sys/bus/pci/devices", "sys/module", "proc", "dev")
Files = Iterator[tuple[str, str | bytes]]
Links = Iterator[tuple[str, str]]


def write(machine: Machine, into: Path) -> None:
    """Write the machine's files under `into`, which must be empty or not exist yet.

    Raises FileExistsError where it is not.
    """
    if into.exists() and any(into.iterdir()):
        raise FileExistsError(f"{into} is not empty")
    sources = (_host, _cpu, _cpufreq, _numa, _memory, _modules, _processes, _pci, _nodes)
    files = {path: content for source in sources for path, content in source(machine)}
    links = dict((*_pci_links(machine), *_process_links(machine)))
    folders = {path.rsplit("/", 1)[0] for path in (*files, *links)}
    for folder in sorted(folders.union(PLACES)):
        (into / folder).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (into / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, target in links.items():
        (into / path).symlink_to(target)
    for path, _ in _nodes(machine):
        (into / path).chmod(0o666)


def _nodes(machine: Machine) -> Files:
    for path in machine.nodes:
        yield path.lstrip("/"), ""


def _lines(folder: str, values: Mapping[str, object]) -> Files:
    """One file of one line for each value that is not None."""
    for name, value in values.items():
        if value is not None:
            yield f"{folder}/{name}", f"{value}\n"


def _host(machine: Machine) -> Files:
    yield "etc/machine-id", f"{machine.machine_id}\n"
    yield (
        "etc/os-release",
        'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n',
    )
    yield "proc/uptime", f"{machine.uptime_s:.2f} {machine.uptime_s:.2f}\n"
    yield "proc/cmdline", f"{machine.cmdline}\n"
    vendor, product = machine.dmi
    yield from _lines("sys/class/dmi/id", {"sys_vendor": vendor, "product_name": product})
    kernel = {
        "hostname": machine.hostname,
        "osrelease": machine.kernel,
        "arch": machine.architecture,
        "random/boot_id": machine.boot_id,
        "numa_balancing": machine.numa_balancing,
    }
    yield from _lines("proc/sys/kernel", kernel)


def _cpu(machine: Machine) -> Files:
    online = format_cpulist(machine.cpus)
    yield from _lines(CPUS, {"online": online, "possible": online, "present": online})
    yield f"{CPUS}/offline", "\n"
    control = "on" if machine.smt else "notsupported"
    yield from _lines(f"{CPUS}/smt", {"active": int(machine.smt), "control": control})
    for socket in range(machine.sockets):
        cpus = machine.cpus_of(socket)
        for cpu in cpus:
            core = cpu % machine.cores_per_socket
            siblings = [other for other in cpus if other % machine.cores_per_socket == core]
            topology = {
                "core_id": core,
                "physical_package_id": socket,
                "core_cpus_list": format_cpulist(siblings),
                "thread_siblings_list": format_cpulist(siblings),
            }
            yield from _lines(f"{CPUS}/cpu{cpu}/topology", topology)
    yield (
        "proc/cpuinfo",
        "\n".join(
            f"processor\t: {cpu}\nvendor_id\t: {machine.cpu_vendor}\n"
            f"model name\t: {machine.cpu_model}\nflags\t\t: fpu vme de pse tsc msr\n"
            for cpu in machine.cpus
        ),
    )


def _cpufreq(machine: Machine) -> Files:
    if machine.cpufreq_driver is None:
        return
    low, high = machine.frequency_khz
    for cpu in machine.cpus:
        policy = {
            "affected_cpus": cpu,
            "scaling_governor": machine.governor,
            "scaling_driver": machine.cpufreq_driver,
            "scaling_available_governors": " ".join(machine.governors_available) + " ",
            "scaling_min_freq": low,
            "scaling_max_freq": high,
            "cpuinfo_min_freq": low,
            "cpuinfo_max_freq": high,
            "energy_performance_preference": machine.epp,
            "energy_performance_available_preferences": (
                machine.epp and "default performance balance_performance balance_power power "
            ),
        }
        yield from _lines(f"{CPUS}/cpufreq/policy{cpu}", policy)
    if machine.cpufreq_driver == "intel_pstate":
        no_turbo = None if machine.no_turbo is None else int(machine.no_turbo)
        yield from _lines(f"{CPUS}/intel_pstate", {"status": "active", "no_turbo": no_turbo})
    else:
        yield f"{CPUS}/cpufreq/boost", "1\n"


def _numa(machine: Machine) -> Files:
    nodes = range(machine.sockets)
    yield f"{NODES}/online", f"{format_cpulist(nodes)}\n"
    for node in nodes:
        total = machine.node_memory_kb
        meminfo = f"Node {node} MemTotal:{total:16} kB\nNode {node} MemFree:{total // 2:17} kB\n"
        distances = (10 if node == other else machine.distance for other in nodes)
        yield f"{NODES}/node{node}/meminfo", meminfo
        yield f"{NODES}/node{node}/cpulist", f"{format_cpulist(machine.cpus_of(node))}\n"
        yield f"{NODES}/node{node}/distance", " ".join(map(str, distances)) + "\n"


def _memory(machine: Machine) -> Files:
    total = machine.node_memory_kb * machine.sockets
    rows = {
        "MemTotal": f"{total} kB",
        "MemFree": f"{total // 2} kB",
        "MemAvailable": f"{total // 2} kB",
        "SwapTotal": f"{machine.swap_kb} kB",
        "SwapFree": f"{machine.swap_kb} kB",
        "Dirty": "128 kB",
        "HugePages_Total": f"{machine.hugepages}",
        "HugePages_Free": f"{machine.hugepages}",
        "Hugepagesize": "2048 kB",
    }
    yield "proc/meminfo", "".join(f"{key + ':':16}{value:>11}\n" for key, value in rows.items())
    chosen = {
        "enabled": ("always madvise never", machine.thp),
        "defrag": ("always defer defer+madvise madvise never", machine.thp_defrag),
    }
    for name, (words, choice) in chosen.items():
        shown = " ".join(f"[{word}]" if word == choice else word for word in words.split())
        yield f"{THP}/{name}", f"{shown}\n"


def _modules(machine: Machine) -> Files:
    yield (
        "proc/modules",
        "".join(f"{name} 16384 0 - Live 0x0000000000000000\n" for name in machine.modules),
    )
    for name in (*machine.modules, *machine.builtin):
        yield f"sys/module/{name}/uevent", ""
    if machine.nvidia_version is not None:
        version = machine.nvidia_version
        kind = (
            f"Open Kernel Module for {machine.architecture}"
            if machine.nvidia_flavour == "open"
            else f"{machine.architecture} Kernel Module"
        )
        yield "sys/module/nvidia/version", f"{version}\n"
        yield (
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
        )


def _first(machine: Machine) -> Process:
    return Process(1, "systemd", (), uid=0, cgroup="/init.scope", started_s=0.5)


def _processes(machine: Machine) -> Files:
    for process in (_first(machine), *machine.processes):
        place = f"proc/{process.pid}"
        cpus = process.cpus_allowed or format_cpulist(machine.cpus)
        mems = process.mems_allowed or format_cpulist(range(machine.sockets))
        after = ["S", "1", *["0"] * 17, str(round(process.started_s * 100)), "0", "0"]
        yield f"{place}/stat", f"{process.pid} ({process.command}) {' '.join(after)}\n"
        yield (
            f"{place}/status",
            f"Name:\t{process.command}\nUid:\t{process.uid}\t{process.uid}\t{process.uid}\t"
            f"{process.uid}\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n",
        )
        yield f"{place}/cgroup", f"0::{process.cgroup}\n"


def _process_links(machine: Machine) -> Links:
    for process in (_first(machine), *machine.processes):
        files = ("/dev/null", *(f"/dev/nvidia{minor}" for minor in process.gpus))
        for descriptor, target in enumerate(files):
            yield f"proc/{process.pid}/fd/{descriptor}", target


def _place(function: Function) -> str:
    """A function's directory, from the host bridge down through the ports above it."""
    path = [*(port.address for port in reversed(function.ports)), function.address]
    return "/".join([f"devices/pci{path[0].rsplit(':', 1)[0]}", *path])


def _placed(machine: Machine) -> dict[str, tuple[str, Function]]:
    """Address -> (directory below sys, function), of every function and port."""
    found: dict[str, tuple[str, Function]] = {}
    for function in (*machine.gpus, *machine.others):
        found[function.address] = (_place(function), function)
        place = _place(function)
        for port in function.ports:
            place = place.rsplit("/", 1)[0]
            found.setdefault(port.address, (place, port))
    return found


def _pci_links(machine: Machine) -> Links:
    for address, (place, function) in _placed(machine).items():
        yield f"sys/bus/pci/devices/{address}", f"../../../{place}"
        if function.driver is not None:
            up = "../" * (place.count("/") + 1)
            yield f"sys/{place}/driver", f"{up}bus/pci/drivers/{function.driver}"


def _pci(machine: Machine) -> Files:
    for place, function in _placed(machine).values():
        folder = f"sys/{place}"
        vendor, device = function.id.split(":")
        subsystem_vendor, subsystem_device = function.subsystem.split(":")
        known = function.numa_node in range(machine.sockets)
        cpus = machine.cpus_of(function.numa_node) if known else machine.cpus
        values = {
            "class": f"0x{function.class_code}",
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "subsystem_vendor": f"0x{subsystem_vendor}",
            "subsystem_device": f"0x{subsystem_device}",
            "revision": f"0x{function.revision}",
            "numa_node": function.numa_node,
            "local_cpulist": format_cpulist(cpus),
        }
        yield from _lines(folder, values)
        yield f"{folder}/config", _config(function)
        if function.link is not None:
            yield from _lines(folder, _link(function.link))
        if function.aer is not None:
            yield from _aer(folder, function.aer)


def _link(link: Link) -> dict[str, object]:
    speeds = {"current_link_speed": link.gts, "max_link_speed": link.gts_max}
    return {
        **{
            name: "Unknown" if gts is None else f"{gts:.1f} GT/s PCIe"
            for name, gts in speeds.items()
        },
        "current_link_width": link.width or 0,
        "max_link_width": 255 if link.width_max is None else link.width_max,
    }


def _aer(folder: str, counts: tuple[tuple[str, str, int], ...]) -> Files:
    for name, (total, kinds) in AER_FILES.items():
        above = {kind: count for file, kind, count in counts if file == name}
        rows = [f"{kind} {above.get(kind, 0)}\n" for kind in dict.fromkeys((*kinds, *above))]
        yield f"{folder}/aer_dev_{name}", "".join(rows) + f"{total} {sum(above.values())}\n"


def _config(function: Function) -> bytes:
    """The first 64 bytes of the configuration space; all ones once it no longer answers."""
    if function.revision == "ff":
        return b"\xff" * 64
    words = [*function.id.split(":"), "0006", "0010"]
    head = b"".join(int(word, 16).to_bytes(2, "little") for word in words)
    kind = int(function.class_code + function.revision, 16).to_bytes(4, "little")
    return (head + kind).ljust(64, b"\0")
