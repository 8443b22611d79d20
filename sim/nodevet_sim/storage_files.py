"""What a healthy machine says of its disks and mounts, as files. Pure.

`files` is hardware; `own` is what a node that is written out has mounted. A node that is booted
has mounts of its own.
"""

from nodevet_sim.cpu_files import Files, Links
from nodevet_sim.machine import SimulatedMachine

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


def files(machine: SimulatedMachine) -> Files:
    yield "proc/mdstat", MDSTAT


def links(machine: SimulatedMachine) -> Links:
    yield from ()


def own(machine: SimulatedMachine) -> Files:
    yield "proc/1/mountinfo", mountinfo()
    yield "proc/1/mountstats", mountstats(machine.uptime_s)


def mountinfo() -> str:
    rows = []
    for at, (point, kind, source, options, super_options) in enumerate(MOUNTS):
        place = f"{30 + at} {30 if at else 1} 259:{at} / {point}"
        filled = super_options.format(options=NFS)
        rows.append(f"{place} {options} shared:{at + 1} - {kind} {source} {filled}\n")
    return "".join(rows)


def mountstats(uptime_s: float, retransmissions: int = 12) -> str:
    """/proc/<pid>/mountstats of a machine with /home on NFS."""
    rows = [
        f"device {source} mounted on {point} with fstype {kind}"
        for point, kind, source, _, _ in MOUNTS
    ]
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
