"""The NFS mounts with their options and what they have counted: /proc/1/mountstats, else
/proc/self/mountstats. See net/sunrpc/stats.c and fs/nfs/super.c in the kernel tree.

The files tell it from memory: no server is asked, and one that is gone blocks nobody. Volumes of
containers, of which a host may have hundreds, are left out.
"""

import re

from nodevet.remote.probe.collectors.mounts import OF_CONTAINERS, of_machine, plain, words
from nodevet.remote.probe.files import Reading, attempt, integer, quote

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
CONNECTS = {"tcp": 2, "rdma": 2}  # where xprt: has how often it connected
SENDS = {"tcp": 5, "udp": 2, "rdma": 5}  # how many requests it sent
BACKLOG = {"tcp": 9, "udp": 6, "rdma": 9}  # what waited for a slot, added up at each of them
PLACES = (("timeouts", 2), ("queue_ms", 5), ("rtt_ms", 6), ("execute_ms", 7), ("failures", 8))
TOTALS = ("operations", "retransmissions") + tuple(name for name, _ in PLACES)
WRAPPED = 1 << 63


def parse_blocks(text: str) -> "list[tuple[str, str, str, list[str]]]":
    """[(point, source, type, rows)] of the NFS mounts in mountstats."""
    starts = list(DEVICE.finditer(text))
    found = []
    for at, start in enumerate(starts):
        end = starts[at + 1].start() if at + 1 < len(starts) else len(text)
        block = text[start.end() : end].partition("\ndevice ")[0]
        source, point, kind = start.groups()
        found.append((plain(point)[:PATH], plain(source)[:PATH], kind, block.splitlines()))
    return found


def after(rows: "Iterable[str]", head: str) -> str:
    """What follows the first row that begins so. Raises ValueError."""
    for row in rows:
        if row.startswith("\t" + head):
            return row[len(head) + 1 :].strip()
    raise ValueError("no {} in mountstats".format(head))


def version_of(options: "Iterable[str]", kind: str) -> str:
    """The protocol's version: 4.2 of vers=4.2. Raises ValueError."""
    for option in options:
        name, _, value = option.partition("=")
        if name in ("vers", "nfsvers") and value:
            return value
    raise ValueError("no vers among the options")


def statistics(rows: "Iterable[str]") -> "dict[str, int | None]":
    """A dict of what the mount's operations add up to. Raises ValueError.

    Of each: how often, how often sent, timed out, bytes out, bytes in, ms in the queue, to the
    server and in all, and errors since Linux 5.4. A time may have wrapped below zero: then it is
    None, as is what not every operation has.
    """
    matches = (OPERATION.match(row) for row in rows)
    columns = [[int(word) for word in match.group(1).split()] for match in matches if match]
    if not columns or any(not 8 <= len(each) <= 64 for each in columns):
        raise ValueError("no statistics of operations in mountstats")
    found: "dict[str, int | None]" = {
        "operations": sum(each[0] for each in columns),
        "retransmissions": sum(max(0, each[1] - each[0]) for each in columns),
    }
    for name, place in PLACES:
        some = [each[place] if place < len(each) else WRAPPED for each in columns]
        found[name] = None if max(some) >= WRAPPED else sum(some)
    return found


def transports(rows: "Iterable[str]") -> "list[tuple[str, list[int]]]":
    """[(kind, numbers)] of the connections. Raises ValueError."""
    found = []
    for row in rows:
        if row.startswith("\txprt:"):
            kind, *numbers = row[6:].split()
            found.append((kind, [integer(number) for number in numbers]))
    if not found:
        raise ValueError("no xprt: in mountstats")
    return found


def added(connections: "Sequence[tuple[str, list[int]]]", places: "dict[str, int]") -> int:
    """One of their numbers, added up. Raises ValueError."""
    if any(kind not in places or len(numbers) <= places[kind] for kind, numbers in connections):
        raise ValueError("not counted for {}".format(quote(connections[0][0])))
    return sum(numbers[places[kind]] for kind, numbers in connections)


def mount(point: str, source: str, kind: str, rows: "list[str]") -> "Reading":
    record = Reading(point=point, source=source, type=kind)
    record.take("options", lambda: words(after(rows, "opts:")))
    record.take("version", lambda: version_of(record["options"] or (), kind))
    record.take("age_s", lambda: integer(after(rows, "age:")))
    take_totals(record, rows)
    take_transports(record, rows)
    return record


def take_totals(record: "Reading", rows: "list[str]") -> None:
    found, why = attempt(statistics, rows)
    for field in TOTALS:
        if found is None:
            record.fail(field, why)
            continue
        count = found[field]
        if count is None or count >= WRAPPED:
            record.fail(field, "the kernel does not count it, or its counter wrapped")
        else:
            record[field] = count


def take_transports(record: "Reading", rows: "list[str]") -> None:
    record.take("connections", transports, rows)
    found = record["connections"]
    if found is None:
        record.fail_all(("connects", "sends", "backlog"), record["errors"]["connections"])
        return
    record["connections"] = len(found)
    record.take("connects", added, found, CONNECTS)
    record.take("sends", added, found, SENDS)
    record.take("backlog", added, found, BACKLOG)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    text = of_machine(root, FIRST, OWN, request.get("whole_machine", False))
    blocks, seen = [], set()
    for point, source, kind, rows in parse_blocks(text):
        if OF_CONTAINERS.match(point):
            continue
        key = (source, tuple(rows))  # a bind mount shows the same counts again
        if key not in seen:
            seen.add(key)
            blocks.append((point, source, kind, rows))
    found = Reading(found=len(blocks))
    if len(blocks) > MOST:
        found.fail("mounts", "more than {} NFS file systems are mounted".format(MOST))
    else:
        found["mounts"] = [mount(*block) for block in blocks]
    return found
