"""NFS mounts with options and counters: /proc/1/mountstats, else /proc/self/mountstats. See
net/sunrpc/stats.c and fs/nfs/super.c in the kernel tree.

The kernel answers from memory: no server is asked, and a dead one blocks nothing. Volumes of
containers, perhaps hundreds, are left out.
"""

import re

from nodevet.remote.fstab import unescape
from nodevet.remote.probe.collectors.mounts import (
    CONTAINER_MOUNTS,
    parse_options,
    read_machine_file,
)
from nodevet.remote.probe.files import Reading, attempt, integer, quote, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

COUNTERS = True
FIRST = "/proc/1/mountstats"
OWN = "/proc/self/mountstats"
MOST = 128  # mounts of different file systems
PATH = 1024  # characters
DEVICE = re.compile(r"device (\S+) mounted on (\S+) with fstype (nfs4?)(?: |$)", re.MULTILINE)
OPERATION = re.compile(r"\t +[A-Z][A-Z0-9_]*: ([0-9]{1,20}(?: [0-9]{1,20})*) *\Z")
CONNECTS = {"tcp": 2, "rdma": 2}  # column of xprt: connections made
SENDS = {"tcp": 5, "udp": 2, "rdma": 5}  # requests sent
BACKLOG = {"tcp": 9, "udp": 6, "rdma": 9}  # requests waiting for a slot, summed
PLACES = (("timeouts", 2), ("queue_ms", 5), ("rtt_ms", 6), ("execute_ms", 7), ("failures", 8))
TOTALS = ("operations", "retransmissions") + tuple(name for name, _ in PLACES)
WRAPPED = 1 << 63


def parse_blocks(text: str) -> "list[tuple[str, str, str, list[str]]]":
    """[(point, source, type, rows)] of the NFS mounts in mountstats."""
    starts = list(DEVICE.finditer(text))
    blocks = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        block = text[start.end() : end].partition("\ndevice ")[0]
        source, point, kind = start.groups()
        blocks.append((unescape(point)[:PATH], unescape(source)[:PATH], kind, text_lines(block)))
    return blocks


def text_after(rows: "Iterable[str]", prefix: str) -> str:
    """The rest of the first row with this prefix. Raises ValueError."""
    for row in rows:
        if row.startswith("\t" + prefix):
            return row[len(prefix) + 1 :].strip()
    raise ValueError("no {} in mountstats".format(prefix))


def version_of(options: "Iterable[str]", kind: str) -> str:
    """The protocol's version: 4.2 of vers=4.2. Raises ValueError."""
    for option in options:
        name, _, value = option.partition("=")
        if name in ("vers", "nfsvers") and value:
            return value
    raise ValueError("no vers among the options")


def statistics(rows: "Iterable[str]") -> "dict[str, int | None]":
    """{field: sum over the mount's operations}. Raises ValueError.

    Columns: operations, transmissions, timeouts, bytes out, bytes in, ms in the queue, to the
    server and in all, errors (since Linux 5.4). None if a time wrapped, or an operation lacks it.
    """
    matches = (OPERATION.match(row) for row in rows)
    columns = [[int(word) for word in match.group(1).split()] for match in matches if match]
    if not columns or any(not 8 <= len(column) <= 64 for column in columns):
        raise ValueError("no statistics of operations in mountstats")
    totals: "dict[str, int | None]" = {
        "operations": sum(column[0] for column in columns),
        "retransmissions": sum(max(0, column[1] - column[0]) for column in columns),
    }
    for name, index in PLACES:
        values = [column[index] if index < len(column) else WRAPPED for column in columns]
        totals[name] = None if max(values) >= WRAPPED else sum(values)
    return totals


def transports(rows: "Iterable[str]") -> "list[tuple[str, list[int]]]":
    """[(kind, numbers)] of the connections. Raises ValueError."""
    connections = []
    for row in rows:
        if row.startswith("\txprt:"):
            kind, *numbers = row[6:].split()
            connections.append((kind, [integer(number) for number in numbers]))
    if not connections:
        raise ValueError("no xprt: in mountstats")
    return connections


def total_of(connections: "Sequence[tuple[str, list[int]]]", columns: "dict[str, int]") -> int:
    """The sum of one column of the connections. Raises ValueError."""
    if any(kind not in columns or len(numbers) <= columns[kind] for kind, numbers in connections):
        raise ValueError("not counted for {}".format(quote(connections[0][0])))
    return sum(numbers[columns[kind]] for kind, numbers in connections)


def mount(point: str, source: str, kind: str, rows: "list[str]") -> "Reading":
    record = Reading(point=point, source=source, type=kind)
    record.take("options", lambda: parse_options(text_after(rows, "opts:")))
    record.take("version", lambda: version_of(record["options"] or (), kind))
    record.take("age_s", lambda: integer(text_after(rows, "age:")))
    take_totals(record, rows)
    take_transports(record, rows)
    return record


def take_totals(record: "Reading", rows: "list[str]") -> None:
    totals, why = attempt(statistics, rows)
    for field in TOTALS:
        if totals is None:
            record.fail(field, why)
            continue
        count = totals[field]
        if count is None or count >= WRAPPED:
            record.fail(field, "the kernel does not count it, or its counter wrapped")
        else:
            record[field] = count


def take_transports(record: "Reading", rows: "list[str]") -> None:
    record.take("connections", transports, rows)
    connections = record["connections"]
    if connections is None:
        record.fail_all(("connects", "sends", "backlog"), record["errors"]["connections"])
        return
    record["connections"] = len(connections)
    record.take("connects", total_of, connections, CONNECTS)
    record.take("sends", total_of, connections, SENDS)
    record.take("backlog", total_of, connections, BACKLOG)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    text = read_machine_file(root, FIRST, OWN, request.get("whole_machine", False))
    blocks, keys = [], set()
    for point, source, kind, rows in parse_blocks(text):
        if CONTAINER_MOUNTS.match(point):
            continue
        key = (source, tuple(rows))  # a bind mount has the same counters
        if key not in keys:
            keys.add(key)
            blocks.append((point, source, kind, rows))
    section = Reading(found=len(blocks))
    if len(blocks) > MOST:
        section.fail("mounts", "more than {} NFS file systems are mounted".format(MOST))
    else:
        section["mounts"] = [mount(*block) for block in blocks]
    return section
