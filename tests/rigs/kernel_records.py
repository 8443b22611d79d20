"""Kernel logs as people keep them, as /dev/kmsg and systemd's journal had them."""

import json
import re
from datetime import datetime

FIRST = 1000  # the number of the first record of a log that does not begin with the boot
DAY = 86400.0
RECORD = re.compile(r"\d+,\d+,\d+,[^;]*;")
NAMES = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
LEVELS = {name: level for level, name in enumerate(NAMES)}
PRIORITY = re.compile(r"<(\d)>|kern  :(\w+) *: ")
SECONDS = re.compile(r"\[ *(\d+\.\d+)\] ")
CALENDAR = re.compile(r"\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ")
ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d+(?:[+-]\d\d:?\d\d)?) ")
NAMED = re.compile(r"(?:\w{3} [ \d]\d \d\d:\d\d:\d\d )?(?:[\w.-]+ )?kernel: ")


def to_records(text: str, step: int = 1) -> str:
    """Each line of a log as a record. Lines without a time follow the one before at once; calendar
    times count from a day after boot. Lines that are records stay as they are. `step`: between the
    numbers of records, 2 where lines were left out."""
    rows, last, began = [], DAY, None
    first = 0 if re.search(r"\A(.*\n){0,3}.*Linux version ", text) else FIRST
    lines = (each for each in text.splitlines() if each.strip())
    for number, line in enumerate(lines):
        if RECORD.match(line):
            rows.append(line)
            continue
        level, seconds, moment, message = _parts(line)
        if moment is not None:
            began = began or moment
            seconds = DAY + (moment - began).total_seconds()
        last = last if seconds is None else seconds
        escaped = message.replace("\\", "\\x5c")
        rows.append(f"{level},{first + number * step},{round(last * 1e6)},-;{escaped}")
    return "".join(f"{row}\n" for row in rows)


def to_entries(records: str) -> str:
    """Records as `journalctl --output=json` prints them."""
    lines = []
    for record in records.splitlines():
        head, _, text = record.partition(";")
        level, _, microseconds, _ = head.split(",")
        entry = {
            "_TRANSPORT": "kernel",
            "SYSLOG_FACILITY": "0",
            "PRIORITY": level,
            "_SOURCE_MONOTONIC_TIMESTAMP": microseconds,
            "MESSAGE": text.replace("\\x5c", "\\"),
        }
        lines.append(json.dumps(entry))
    return "".join(f"{line}\n" for line in lines)


def _parts(line: str) -> tuple[int, float | None, datetime | None, str]:
    """The level, seconds or calendar time if there is one, and the message of a line."""
    level, seconds, moment = 4, None, None
    if priority := PRIORITY.match(line):
        level = int(priority[1]) if priority[1] else LEVELS[priority[2]]
        line = line[priority.end() :]
    if found := SECONDS.match(line):
        seconds = float(found[1])
    elif found := CALENDAR.match(line):
        moment = datetime.strptime(found[1], "%a %b %d %H:%M:%S %Y")
    elif found := ISO.match(line):
        moment = datetime.fromisoformat(found[1].replace(",", "."))
    line = line[found.end() :] if found else line
    named = NAMED.match(line)
    return level, seconds, moment, line[named.end() :] if named else line
