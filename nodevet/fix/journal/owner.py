"""Whether a run's controller still runs. This takes no lock and writes nothing, so it never blocks
a controller that starts."""

import os
import socket
import time
from enum import Enum
from pathlib import Path

from nodevet.fix.journal.records import RunBegin

LOCKS = Path("/proc/locks")


class Controller(str, Enum):
    """The state of a run's controller, as far as this machine knows."""

    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"


def controller_state(file: Path, last_begin: RunBegin) -> tuple[Controller, str]:
    """The state of the controller of the journal in `file`, and where it is, or why that is not
    known. `last_begin`: of the last try."""
    if pid := _lock_holder(file):
        return Controller.RUNNING, f"process {pid}"
    if last_begin.controller != socket.gethostname():
        host = last_begin.controller or "another machine"
        return Controller.UNKNOWN, f"it ran on {host}, process {last_begin.pid}: run status there"
    if last_begin.boot_id != boot_id():
        return Controller.GONE, f"{last_begin.controller} was rebooted since"
    return _process_state(file, last_begin.pid)


def _lock_holder(file: Path) -> int:
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


def _process_state(file: Path, pid: int) -> tuple[Controller, str]:
    """The state by the open files of the process: /proc/locks has other numbers for some file
    systems."""
    folder = Path(f"/proc/{pid}")
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        if state in (b"Z", b"X"):
            return Controller.GONE, f"process {pid} has ended"
        status = file.stat()
        for link in (folder / "fd").iterdir():
            try:
                opened = link.stat()
            except OSError:  # closed meanwhile, or a socket
                continue
            if os.path.samestat(opened, status):
                return Controller.RUNNING, f"process {pid}"
    except PermissionError:
        return Controller.UNKNOWN, f"process {pid} belongs to another user: run this as that user"
    except OSError:
        return Controller.GONE, f"process {pid} has ended"
    return Controller.GONE, f"process {pid} is another process by now"


def boot_id() -> str:
    """The boot id of this machine; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def uptime_s() -> float:
    """Seconds since this machine booted, also while it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
