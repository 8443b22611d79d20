"""What the kernel and the firmware say of a healthy machine around its GPUs, as files. Pure."""

from nodevet_sim.cpu_files import CPUS, Files, lines
from nodevet_sim.machine import SimulatedMachine

CLOCK = "sys/devices/system/clocksource/clocksource0"
EDAC = "sys/devices/system/edac/mc"
DMI = "sys/devices/virtual/dmi/id"
RESOLVER = "/etc/resolv.conf"
ROOT_FILES = {
    "/etc/security/limits.d/90-rdma.conf": "* - memlock unlimited\n* - nofile 1048576\n",
    "/etc/security/limits.d/91-jobs.conf": "* - nproc 1048576\n* - stack 65536\n",
    RESOLVER: "nameserver 127.0.0.1\nsearch cluster.example\n",  # a cache of the node's own
}
"""On the node's own disk."""
CONTROLLERS = 2  # of memory, in a socket


def files(machine: SimulatedMachine) -> Files:
    for part in (_clock, _kernel, _idle, _edac, _bios):
        yield from part(machine)


def _clock(machine: SimulatedMachine) -> Files:
    yield f"{CLOCK}/current_clocksource", "tsc\n"
    yield f"{CLOCK}/available_clocksource", "tsc hpet acpi_pm \n"


def _kernel(machine: SimulatedMachine) -> Files:
    yield "proc/loadavg", "0.52 0.48 0.40 2/3187 41234\n"
    yield "proc/sys/fs/file-nr", "14592\t0\t9223372036854775807\n"
    yield from lines("proc/sys/kernel", {"pid_max": 4194304, "threads-max": 4127000})
    blocks = (300, 260, 210, 170, 120, 90, 60, 40, 30, 20, 60000)
    row = " ".join(f"{count:6}" for count in blocks)
    rows = (f"Node {node}, zone   Normal {row} \n" for node in machine.numa_nodes)
    yield "proc/buddyinfo", "".join(rows)
    yield "proc/sys/vm/compact_memory", ""
    yield "proc/sys/vm/drop_caches", ""


def _idle(machine: SimulatedMachine) -> Files:
    """Idle states as a latency profile leaves them: what is deeper than C1 is disabled."""
    yield from lines(
        f"{CPUS}/cpuidle", {"current_driver": "intel_idle", "current_governor": "menu"}
    )
    for cpu in machine.cpus:
        for number, (name, latency) in enumerate((("C1", 1), ("C6", 290))):
            state = {"name": name, "latency": latency, "disable": number}
            yield from lines(f"{CPUS}/cpu{cpu}/cpuidle/state{number}", state)


def _edac(machine: SimulatedMachine) -> Files:
    amd = machine.cpu_vendor == "AuthenticAMD"
    for number in range(machine.sockets * CONTROLLERS):
        socket, part = divmod(number, CONTROLLERS)
        driver = "F19h_M10h" if amd else f"Intel_10nm Socket#{socket} IMC#{part}"
        counts = {"ce_count": 0, "ue_count": 0, "ce_noinfo_count": 0, "ue_noinfo_count": 0}
        since = {"mc_name": driver, "seconds_since_reset": int(machine.uptime_s)}
        yield from lines(f"{EDAC}/mc{number}", {**since, **counts})
        for dimm in range(2):
            files = {
                "dimm_label": f"CPU_SrcID#{socket}_MC#{part}_Chan#{dimm}_DIMM#0",
                "dimm_location": f"channel {dimm} slot 0 ",
                "dimm_ce_count": 0,
                "dimm_ue_count": 0,
            }
            yield from lines(f"{EDAC}/mc{number}/dimm{dimm}", files)


def _bios(machine: SimulatedMachine) -> Files:
    yield from lines(DMI, {"bios_version": "2.2.7", "bios_date": "06/14/2024"})
