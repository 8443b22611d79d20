"""A machine's CPUs, frequency policies, NUMA nodes and memory as kernel files and links. Pure.

Documentation/ABI/testing/sysfs-devices-system-cpu, stable/sysfs-devices-node and
Documentation/admin-guide/pm/cpufreq.rst in the kernel tree; proc(5).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet_sim.machine import SimulatedMachine

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
HUGEPAGES = "sys/kernel/mm/hugepages"
THP = "sys/kernel/mm/transparent_hugepage"
EPP = "default performance balance_performance balance_power power "
Content = str | bytes
Files = Iterator[tuple[str, Content]]
Links = Iterator[tuple[str, str]]


def lines(folder: str, values: Mapping[str, object]) -> Files:
    """One file of one line for each value that is not None."""
    for name, value in values.items():
        if value is not None:
            yield f"{folder}/{name}", f"{value}\n"


def mask(cpus: Iterable[int], possible: int) -> str:
    """A cpumask as the kernel prints it: groups of 32 bits, the highest first.

    >>> mask((0, 33), 40)
    '02,00000001'
    """
    bits = sum(1 << cpu for cpu in cpus)
    digits = f"{bits:0{(possible + 3) // 4}x}"
    head = len(digits) % 8
    groups = [digits[at : at + 8] for at in range(head, len(digits), 8)]
    return ",".join([digits[:head], *groups] if head else groups)


def files(machine: SimulatedMachine) -> Files:
    for part in (_cpus, _topology, _cpufreq, _numa, _memory):
        yield from part(machine)
    yield "proc/cpuinfo", cpuinfo(machine, machine.cpus)


def links(machine: SimulatedMachine) -> Links:
    for cpu in machine.cpus:
        yield f"sys/bus/cpu/devices/cpu{cpu}", f"../../../devices/system/cpu/cpu{cpu}"
        yield f"{CPUS}/cpu{cpu}/subsystem", "../../../../bus/cpu"
    for node in machine.numa_nodes:
        yield f"sys/bus/node/devices/node{node}", f"../../../devices/system/node/node{node}"
        for cpu in machine.cpus_of_node(node):
            yield f"{NODES}/node{node}/cpu{cpu}", f"../../cpu/cpu{cpu}"
            yield f"{CPUS}/cpu{cpu}/node{node}", f"../../node/node{node}"
    for first, cpus in policies(machine):
        for cpu in cpus:
            yield f"{CPUS}/cpu{cpu}/cpufreq", f"../cpufreq/policy{first}"


def _cpus(machine: SimulatedMachine) -> Files:
    online = format_cpulist(machine.cpus)
    same = {"online": online, "possible": online, "present": online, "kernel_max": 8191}
    yield from lines(CPUS, same)
    yield f"{CPUS}/offline", "\n"
    yield f"{CPUS}/isolated", "\n"
    for cpu in machine.cpus:
        yield f"{CPUS}/cpu{cpu}/uevent", "DRIVER=processor\n"  # libudev asks for it
    control = "on" if machine.smt else "notsupported"
    yield from lines(f"{CPUS}/smt", {"active": int(machine.smt), "control": control})


def _topology(machine: SimulatedMachine) -> Files:
    possible = len(machine.cpus)
    for socket in range(machine.sockets):
        package = _mask_and_list("package_cpus", machine.cpus_of(socket), possible)
        package.update(_mask_and_list("core_siblings", machine.cpus_of(socket), possible))
        package.update(_mask_and_list("die_cpus", machine.cpus_of(socket), possible))
        for cpu in machine.cpus_of(socket):
            siblings = machine.cpus_of_core(cpu)
            own = {
                "physical_package_id": socket,
                "die_id": 0,
                "core_id": cpu % machine.cores_per_socket,
                **_mask_and_list("core_cpus", siblings, possible),
                **_mask_and_list("thread_siblings", siblings, possible),
            }
            yield from lines(f"{CPUS}/cpu{cpu}/topology", {**own, **package})
            if cpu:  # the first CPU of x86 cannot be switched off
                yield f"{CPUS}/cpu{cpu}/online", "1\n"


def _mask_and_list(name: str, cpus: Iterable[int], possible: int) -> dict[str, object]:
    cpus = tuple(cpus)
    return {name: mask(cpus, possible), f"{name}_list": format_cpulist(cpus)}


def cpuinfo(machine: SimulatedMachine, cpus: Collection[int]) -> str:
    """/proc/cpuinfo with the machine's model for these CPUs."""
    most = machine.frequency_khz[1] / 1000
    return "\n".join(
        f"processor\t: {cpu}\nvendor_id\t: {machine.cpu_vendor}\n"
        f"model name\t: {machine.cpu_model}\ncpu MHz\t\t: {most:.3f}\n"
        f"physical id\t: {cpu // machine.cores_per_socket % machine.sockets}\n"
        f"siblings\t: {machine.cores_per_socket * (1 + machine.smt)}\n"
        f"core id\t\t: {cpu % machine.cores_per_socket}\n"
        f"cpu cores\t: {machine.cores_per_socket}\n"
        "flags\t\t: fpu vme de pse tsc msr\n"
        for cpu in cpus
    )


def policies(machine: SimulatedMachine) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The number of each cpufreq policy, that of its first CPU, and its CPUs."""
    if machine.cpufreq_driver is None:
        return
    for cpu in machine.cpus:
        if machine.cpufreq_per == "cpu":
            shared: tuple[int, ...] = (cpu,)
        elif machine.cpufreq_per == "core":
            shared = machine.cpus_of_core(cpu)
        else:
            shared = machine.cpus_of(cpu // machine.cores_per_socket % machine.sockets)
        if cpu == shared[0]:
            yield cpu, shared


def _cpufreq(machine: SimulatedMachine) -> Files:
    low, high = machine.frequency_khz
    for first, cpus in policies(machine):
        policy = {
            "affected_cpus": " ".join(map(str, cpus)),
            "related_cpus": " ".join(map(str, cpus)),
            "scaling_governor": machine.governor,
            "scaling_driver": machine.cpufreq_driver,
            "scaling_available_governors": " ".join(machine.governors_available) + " ",
            "scaling_min_freq": low,
            "scaling_max_freq": high,
            "scaling_cur_freq": high if machine.governor == "performance" else low,
            "scaling_setspeed": "<unsupported>",
            "cpuinfo_min_freq": low,
            "cpuinfo_max_freq": high,
            "cpuinfo_transition_latency": 0,
            "energy_performance_preference": machine.epp,
            "energy_performance_available_preferences": machine.epp and EPP,
        }
        yield from lines(f"{CPUS}/cpufreq/policy{first}", policy)
    if machine.cpufreq_driver == "intel_pstate":
        no_turbo = None if machine.no_turbo is None else int(machine.no_turbo)
        percent = {"min_perf_pct": low * 100 // high, "max_perf_pct": 100}
        state = {"status": "active", "no_turbo": no_turbo, **percent}
        yield from lines(f"{CPUS}/intel_pstate", state)
    elif machine.cpufreq_driver is not None:
        yield f"{CPUS}/cpufreq/boost", "1\n"


def _numa(machine: SimulatedMachine) -> Files:
    nodes = machine.numa_nodes
    online = format_cpulist(nodes)
    with_cpus = format_cpulist(node for node in nodes if machine.cpus_of_node(node))
    lists = {"online": online, "possible": online, "has_cpu": with_cpus}
    yield from lines(NODES, {**lists, "has_memory": online, "has_normal_memory": online})
    for node in nodes:
        total = machine.node_memory_kb
        meminfo = f"Node {node} MemTotal:{total:16} kB\nNode {node} MemFree:{total // 2:17} kB\n"
        cpus = machine.cpus_of_node(node)
        distances = (_distance(machine, node, other) for other in nodes)
        yield f"{NODES}/node{node}/meminfo", meminfo
        yield f"{NODES}/node{node}/cpulist", f"{format_cpulist(cpus)}\n"
        yield f"{NODES}/node{node}/cpumap", f"{mask(cpus, len(machine.cpus))}\n"
        yield f"{NODES}/node{node}/distance", " ".join(map(str, distances)) + "\n"


def _distance(machine: SimulatedMachine, node: int, other: int) -> int:
    if node == other:
        return 10
    socket, its = node // machine.numa_per_socket, other // machine.numa_per_socket
    near = socket == its and socket < machine.sockets
    return machine.distance_near if near else machine.distance


def meminfo(total_kb: int, swap_kb: int = 0, hugepages: int = 0) -> str:
    """/proc/meminfo of a machine that uses half of its memory."""
    rows = {
        "MemTotal": f"{total_kb} kB",
        "MemFree": f"{total_kb // 2} kB",
        "MemAvailable": f"{total_kb // 2} kB",
        "Buffers": "0 kB",
        "Cached": "0 kB",
        "Shmem": "0 kB",
        "SReclaimable": "0 kB",
        "SwapTotal": f"{swap_kb} kB",
        "SwapFree": f"{swap_kb} kB",
        "Dirty": "128 kB",
        "HugePages_Total": f"{hugepages}",
        "HugePages_Free": f"{hugepages}",
        "Hugepagesize": "2048 kB",
        "Hugetlb": f"{hugepages * 2048} kB",
    }
    return "".join(f"{key + ':':16}{value:>11}\n" for key, value in rows.items())


def swaps(swap_kb: int) -> str:
    """/proc/swaps of a machine with one swap file, or with none."""
    heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    return heading + (f"{'/swapfile':39} file\t\t{swap_kb}\t\t0\t\t-2\n" if swap_kb else "")


def _memory(machine: SimulatedMachine) -> Files:
    total = machine.node_memory_kb * len(machine.numa_nodes)
    yield "proc/meminfo", meminfo(total, machine.swap_kb, machine.hugepages)
    yield "proc/swaps", swaps(machine.swap_kb)
    chosen = {
        "enabled": ("always madvise never", machine.thp),
        "defrag": ("always defer defer+madvise madvise never", machine.thp_defrag),
    }
    for name, (words, choice) in chosen.items():
        shown = " ".join(f"[{word}]" if word == choice else word for word in words.split())
        yield f"{THP}/{name}", f"{shown}\n"
    for size, pages in ((2048, machine.hugepages), (1 << 20, 0)):
        counts = {"nr_hugepages": pages, "free_hugepages": pages}
        yield from lines(f"{HUGEPAGES}/hugepages-{size}kB", counts)
    yield from lines("proc/sys/kernel", {"numa_balancing": machine.numa_balancing})
