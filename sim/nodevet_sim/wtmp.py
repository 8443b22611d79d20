"""/var/log/wtmp of a node, as `last -x reboot shutdown` reads it: utmp(5). Pure."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PATH = "/var/log/wtmp"
DAY = 86400.0
SHUTDOWN_S = 60.0  # from a shutdown to the boot after it
RUN_LEVEL, BOOT = 1, 2  # ut_type
# struct utmp of x86-64: type, pid, line, id, user, host, exit, session, time in s and µs, address
RECORD = struct.Struct("<h2xi32s4s32s256s2hiii16s20x")


@dataclass(frozen=True)
class BootRecord:
    at_s: float  # seconds since 1970
    shut_down: bool = False  # before the next one


def text(boots: Sequence[BootRecord]) -> bytes:
    """The file after these boots, the oldest first."""
    records = []
    for boot, after in zip(boots, (*boots[1:], None), strict=True):
        records.append(record(BOOT, "reboot", boot.at_s))
        if boot.shut_down and after is not None:
            at_s = max(boot.at_s, after.at_s - SHUTDOWN_S)
            records.append(record(RUN_LEVEL, "shutdown", at_s))
    return b"".join(records)


def record(kind: int, user: str, at_s: float) -> bytes:
    return RECORD.pack(kind, 0, b"~", b"~~", user.encode(), b"", 0, 0, 0, int(at_s), 0, b"")
