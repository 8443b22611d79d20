"""When the node was booted, and whether it was shut down before, by /var/log/wtmp and the one
before it: utmp(5), last(1).

A record has 384 bytes where times have 32 bits, as on x86, and 400 where they have 64.
"""

import os
import re
import struct

from nodevet.remote.probe.files import Reading, attempt, names, path_under

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

ASKED = True
FOLDER, FILE = "/var/log", "wtmp"
OLDER = re.compile(r"wtmp(?:\.1|-[0-9]{8})\Z")  # as logrotate names it
LIMIT = 4 << 20  # bytes of a file, from its end; 10,000 records
MOST = 1024  # boots that are kept, the latest
RUN_LEVEL, BOOT = 1, 2  # ut_type
TYPES = 10
USER = slice(44, 76)
LAYOUTS = ((384, struct.Struct("<i"), 340), (400, struct.Struct("<q"), 344))  # size, time, where


def tail(root: str, path: str) -> "tuple[bytes, int]":
    """The end of a file, and whether that is all of it. Raises OSError."""
    with open(path_under(root, path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - LIMIT))
        return file.read(LIMIT), size


def parse_records(data: bytes, size: int) -> "list[tuple[int, bytes, int]]":
    """(type, user, seconds since 1970) of every record in the end of a file of so many bytes.
    Raises ValueError."""
    for length, form, at in LAYOUTS:
        first = (len(data) - size) % length  # a tail begins within a record
        starts = range(first, len(data) - length + 1, length)
        if size % length == 0 and all(
            data[start] < TYPES and not data[start + 1] for start in starts
        ):
            return [
                (
                    data[start],
                    data[start : start + length][USER].split(b"\0")[0],
                    form.unpack_from(data, start + at)[0],
                )
                for start in starts
                if data[start] in (RUN_LEVEL, BOOT) or start == first
            ]
    raise ValueError("not records of utmp(5)")


def parse_boots(records: "Sequence[tuple[int, bytes, int]]") -> "tuple[list[Reading], int | None]":
    """(boots, when the first record was written) of records in their order."""
    boots, shut, first = [], None, None
    for kind, user, seconds in records:
        first = seconds if first is None else first
        if kind == BOOT:
            boots.append(Reading(at_s=seconds, clean=shut))
            if shut is None:
                boots[-1].fail("clean", "wtmp begins with it")
            shut = False
        elif kind == RUN_LEVEL and user == b"shutdown":
            shut = True
    return boots, first


def history(root: str) -> "tuple[list[tuple[int, bytes, int]], bool]":
    """(records of both files, whether there was nothing before). Raises OSError, ValueError."""
    older = sorted(name for name in names(root, FOLDER) if OLDER.match(name))
    data, size = tail(root, "{}/{}".format(FOLDER, FILE))
    records, whole = parse_records(data, size), len(data) == size
    if older and whole:
        path = "{}/{}".format(FOLDER, older[-1])
        data, size = tail(root, path)
        records = parse_records(data, size) + records
        whole = False
    return records, whole


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    found = Reading()
    read, why = attempt(history, root)
    if read is None:
        found.fail_all(("boots", "since_s", "whole"), why)
        return found
    boots, first = parse_boots(read[0])
    found["boots"] = boots[-MOST:]
    found["whole"] = read[1] and len(boots) <= MOST
    if first is None:
        found.fail("since_s", "wtmp is empty")
    else:
        found["since_s"] = first if len(boots) <= MOST else found["boots"][0]["at_s"]
    return found
