"""The files of a healthy machine about its disks and mounts. Pure.

`files` and `links` are hardware, `logs` what its NVMe drives answer to nvme-cli; `own` is what a
node that is written out has mounted. A booted node has its own mounts.
"""

import hashlib
import json
from collections.abc import Iterator

from nodevet_sim.cpu_files import Files, Links, lines
from nodevet_sim.machine import SimulatedFunction, SimulatedMachine
from nodevet_sim.pci_files import placed

MODELS = {  # vendor -> model, firmware
    "1344": ("Micron_7450_MTFDKCB3T8TFR", "E2MU200"),
    "144d": ("Samsung SSD 990 PRO 1TB", "4B2QJXD7"),
}
LOGS = "/usr/lib/nodevet-sim/nvme"  # where a node's nvme-cli finds them
HEALTHY_LOG = {  # of a drive after a year, as nvme-cli prints it; kelvins
    "critical_warning": 0,
    "temperature": 308,
    "avail_spare": 100,
    "spare_thresh": 10,
    "percent_used": 2,
    "endurance_grp_critical_warning_summary": 0,
    "data_units_read": 401234567,
    "data_units_written": 201234567,
    "host_read_commands": 3012345678,
    "host_write_commands": 1512345678,
    "controller_busy_time": 4012,
    "power_cycles": 34,
    "power_on_hours": 8760,
    "unsafe_shutdowns": 11,
    "media_errors": 0,
    "num_err_log_entries": 0,
    "warning_temp_time": 0,
    "critical_comp_time": 0,
}

MDSTAT = "Personalities : \nunused devices: <none>\n"
MOUNTS = (  # point, type, source, options of the mount, of its file system
    ("/", "ext4", "/dev/nvme0n1p2", "rw,relatime", "rw,errors=remount-ro"),
    ("/dev/shm", "tmpfs", "tmpfs", "rw,nosuid,nodev", "rw,inode64"),  # noqa: S108
    ("/boot/efi", "vfat", "/dev/nvme0n1p1", "rw,relatime", "rw,fmask=0077,codepage=437"),
    ("/home", "nfs4", "filer:/home", "rw,relatime", "rw,{options}"),
)
NFS = (
    "vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,nconnect=8,timeo=600,retrans=2,"
    "sec=sys,clientaddr=10.0.0.1,local_lock=none,addr=10.0.0.250"
)
CONNECTIONS = 8
MOUNTSTATS = "proc/1/mountstats"


def drives(machine: SimulatedMachine) -> Iterator[tuple[str, str, SimulatedFunction]]:
    """(name, directory below sys, function) of every NVMe controller."""
    placed_functions = sorted(placed(machine).items())
    on_bus = [each for _, each in placed_functions if each[1].class_code.startswith("0108")]
    for at, (place, function) in enumerate(on_bus):
        yield f"nvme{at}", f"{place}/nvme/nvme{at}", function


def files(machine: SimulatedMachine) -> Files:
    yield "proc/mdstat", MDSTAT
    for name, place, function in drives(machine):
        model, firmware = MODELS.get(function.id.partition(":")[0], ("NVMe drive", "1.0"))
        serial = hashlib.sha256(f"{machine.hostname}/{name}".encode()).hexdigest()[:12].upper()
        told = {
            "model": f"{model:40}",
            "serial": f"{serial:20}",
            "firmware_rev": f"{firmware:8}",
            "state": "live",
            "transport": "pcie",
            "address": function.address,
            "numa_node": function.numa_node,
            "cntrltype": "io",
        }
        yield from lines(f"sys/{place}", told)
        number = name.removeprefix("nvme")
        yield from lines(f"sys/{place}/hwmon{number}", {"name": "nvme", "temp1_input": 34850})


def links(machine: SimulatedMachine) -> Links:
    for name, place, _ in drives(machine):
        yield f"sys/class/nvme/{name}", f"../../{place}"


def logs(machine: SimulatedMachine) -> Files:
    for name, _, _ in drives(machine):
        yield f"{LOGS}/{name}.json", f"{json.dumps(HEALTHY_LOG, indent=2)}\n"


def mount_files(machine: SimulatedMachine) -> Files:
    yield "proc/1/mountinfo", mountinfo()
    yield MOUNTSTATS, mountstats(machine.uptime_s)


def mountinfo() -> str:
    rows = []
    for at, (point, kind, source, options, super_options) in enumerate(MOUNTS):
        place = f"{30 + at} {30 if at else 1} 259:{at} / {point}"
        filled = super_options.format(options=NFS)
        rows.append(f"{place} {options} shared:{at + 1} - {kind} {source} {filled}\n")
    return "".join(rows)


def mountstats(uptime_s: float, retransmissions: int = 12, point: str = "/home") -> str:
    """/proc/<pid>/mountstats of a machine with `point` on NFS."""
    rows = [
        f"device {source} mounted on {place} with fstype {kind}"
        for place, kind, source, _, _ in MOUNTS[:-1]
    ]
    rows.append(f"device filer:{point} mounted on {point} with fstype nfs4")
    sent = 120000 + retransmissions
    xprt = f"\txprt:\ttcp 0 0 1 0 5 {sent // CONNECTIONS} {sent // CONNECTIONS} 0 210 0 24 26 572"
    counts = (
        f"READ: 100000 {100000 + retransmissions} 0 16000000 52428800000 4100 98000 103000 0",
        "WRITE: 20000 20000 0 5242880000 2720000 900 31000 32500 0",
    )
    return "\n".join(
        (
            *rows[:-1],
            f"{rows[-1]} statvers=1.1",
            f"\topts:\trw,{NFS}",
            f"\tage:\t{uptime_s:.0f}",
            "\tcaps:\tcaps=0xffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255",
            "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)",
            *(xprt for _ in range(CONNECTIONS)),
            "\tper-op statistics",
            *(f"\t{count:>70}" for count in counts),
            "",
            "",
        )
    )
