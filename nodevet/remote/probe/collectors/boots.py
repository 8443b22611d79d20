"""Boots, and whether a shutdown came before each, by /var/log/wtmp and the file before it: utmp(5).

A record has 384 bytes with times of 32 bits, as on x86, and 400 with times of 64 bits.
"""

import os
import re
import struct

from nodevet.remote.probe.files import Reading, attempt, names, open_regular, path_under

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

ASKED = True
FOLDER, FILE = "/var/log", "wtmp"
OLDER = re.compile(r"wtmp(?:\.1|-[0-9]{8})\Z")  # logrotate's names
LIMIT = 4 << 20  # bytes of a file, from its end; 10,000 records
MOST = 1024  # boots, the latest
RUN_LEVEL, BOOT = 1, 2  # ut_type
TYPES = 10
USER = slice(44, 76)
LAYOUTS = ((384, struct.Struct("<i"), 340), (400, struct.Struct("<q"), 344))  # size, time, where


def tail(root: str, path: str) -> "tuple[bytes, int]":
    """(the end of a file, its size). Raises OSError, ValueError."""
    with os.fdopen(open_regular(path_under(root, path)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - LIMIT))
        return file.read(LIMIT), size


def parse_records(data: bytes, size: int) -> "list[tuple[int, bytes, int]]":
    """(type, user, seconds since 1970) of every record in the end of a file of `size` bytes.
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
    """(boots, time of the first record) of records in order."""
    boots, was_shut_down, first = [], None, None
    for kind, user, seconds in records:
        first = seconds if first is None else first
        if kind == BOOT:
            boots.append(Reading(at_s=seconds, clean=was_shut_down))
            if was_shut_down is None:
                boots[-1].fail("clean", "wtmp begins with it")
            was_shut_down = False
        elif kind == RUN_LEVEL and user == b"shutdown":
            was_shut_down = True
    return boots, first


def history(root: str) -> "tuple[list[tuple[int, bytes, int]], bool]":
    """(records of both files, whether they are complete). Raises OSError, ValueError."""
    older = sorted(name for name in names(root, FOLDER) if OLDER.match(name))
    data, size = tail(root, "{}/{}".format(FOLDER, FILE))
    records, is_whole = parse_records(data, size), len(data) == size
    if older and is_whole:
        path = "{}/{}".format(FOLDER, older[-1])
        data, size = tail(root, path)
        records = parse_records(data, size) + records
        is_whole = False
    return records, is_whole


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    section = Reading()
    result, why = attempt(history, root)
    if result is None:
        section.fail_all(("boots", "since_s", "whole"), why)
        return section
    boots, first = parse_boots(result[0])
    section["boots"] = boots[-MOST:]
    section["whole"] = result[1] and len(boots) <= MOST
    if first is None:
        section.fail("since_s", "wtmp is empty")
    else:
        section["since_s"] = first if len(boots) <= MOST else section["boots"][0]["at_s"]
    return section
