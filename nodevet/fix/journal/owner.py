"""Whether a run's controller is still at it, found out without its lock: nothing is written, and
no controller that begins meanwhile finds the journal taken."""

import os
import socket
from enum import Enum
from pathlib import Path

from nodevet.fix.journal.records import RunBegin

LOCKS = Path("/proc/locks")


class Controller(str, Enum):
    """Of a run, as far as this machine can tell."""

    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"


def controller(file: Path, begun: RunBegin) -> tuple[Controller, str]:
    """Of the journal in `file`, whose last try is `begun`; and where, or why that is not known."""
    if pid := _holder(file):
        return Controller.RUNNING, f"process {pid}"
    if begun.controller != socket.gethostname():
        where = begun.controller or "another machine"
        return Controller.UNKNOWN, f"it ran on {where}, process {begun.pid}: ask there"
    if begun.boot_id != boot_id():
        return Controller.GONE, f"{begun.controller} was rebooted since"
    return _process(file, begun.pid)


def _holder(file: Path) -> int:
    """The process that holds the lock of this file, by the kernel's list; 0 if none is listed."""
    try:
        status = file.stat()
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fe:00:2163182 0 EOF
        if fields[5:6] == [place] and fields[1] == "FLOCK" and fields[3] == "WRITE":
            return int(fields[4])
    return 0


def _process(file: Path, pid: int) -> tuple[Controller, str]:
    """By what the process has open: in the kernel's list some file systems have other numbers."""
    folder = Path(f"/proc/{pid}")
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        if state in (b"Z", b"X"):
            return Controller.GONE, f"process {pid} has ended"
        status = file.stat()
        for each in (folder / "fd").iterdir():
            try:
                open_one = each.stat()
            except OSError:  # closed meanwhile, or a socket
                continue
            if os.path.samestat(open_one, status):
                return Controller.RUNNING, f"process {pid}"
    except PermissionError:
        return Controller.UNKNOWN, f"process {pid} may not be looked at: ask as its user"
    except OSError:
        return Controller.GONE, f"process {pid} has ended"
    return Controller.GONE, f"process {pid} is another one by now"


def boot_id() -> str:
    """Of this machine; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
