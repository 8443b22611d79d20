"""What the node's CPUs, memory, disks and networks do while nodevet watches them.

/proc/{stat,meminfo,vmstat,diskstats,interrupts}, /proc/pressure, /proc/1/mountstats,
/sys/class/{net,infiniband}; see proc(5) and Documentation/admin-guide/iostats.rst.
"""

import os
import re

from nodevet.remote.probe.collectors.mounts import read_machine_file
from nodevet.remote.probe.collectors.nfs import FIRST, OWN, parse_blocks
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    line,
    names,
    parse_rows,
    path_under,
    pick,
    read,
    text_lines,
)
from nodevet.remote.probe.watch import HZ, Series, Watch, put_counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")
CPU_FIELDS = ("user", "system", "idle", "iowait", "irq", "steal")
TOTALS = CPU_FIELDS + ("context_switches", "running", "blocked")
COUNTED_ROWS = {"ctxt": "context_switches", "procs_running": "running", "procs_blocked": "blocked"}
PRESSURE = (("cpu", "some"), ("io", "some"), ("io", "full"), ("memory", "some"), ("memory", "full"))
MEMINFO = (
    ("available_kb", "MemAvailable"),
    ("dirty_kb", "Dirty"),
    ("writeback_kb", "Writeback"),
    ("swap_free_kb", "SwapFree"),
)
VMSTAT = (
    ("swapped_in_pages", ("pswpin",)),
    ("swapped_out_pages", ("pswpout",)),
    ("major_faults", ("pgmajfault",)),
    (
        "direct_reclaims",
        ("allocstall_dma", "allocstall_dma32", "allocstall_normal", "allocstall_movable"),
    ),
)
MEMORY = tuple(field for field, _ in MEMINFO + VMSTAT)
DISK_FIELDS = ("reads", "read_sectors", "read_ms", "writes", "written_sectors", "write_ms")
DISK_PLACES = (3, 5, 6, 7, 9, 10)
BUSY_PLACE = 12
NFS_FIELDS = ("operations", "transmissions", "sent_b", "received_b", "queue_ms", "rtt_ms")
NFS_PLACES = (0, 1, 3, 4, 5, 6)
EXECUTE_PLACE = 7
NFS_ROW = re.compile(r"\t +([A-Z][A-Z0-9_]*): ([0-9]{1,20}(?: [0-9]{1,20}){7,63}) *\Z")
NFS_MOST = 256
NET_FIELDS = ("received_b", "sent_b", "dropped")
IB_WORD = 4  # port_rcv_data and port_xmit_data count words of four bytes
INTERRUPTS = re.compile(r"nvidia|nvme|mlx|ib|eth|en[ops]|ice|i40e|bnxt|virtio|ena|efa")
INTERRUPTS_MOST = 1024
BUSIEST = 512  # disks, and networks
SHARE = 0.001  # of one core


def cpu_ticks(words: "list[str]") -> "dict[str, int]":
    """Ticks of a row of /proc/stat; user includes nice and guests."""
    user, nice, system, idle, iowait, irq, softirq, steal = [
        integer(word) for word in (words + ["0"] * 8)[:8]
    ]
    return {
        "user": user + nice,
        "system": system,
        "idle": idle,
        "iowait": iowait,
        "irq": irq + softirq,
        "steal": steal,
    }


def parse_stat(text: str) -> "tuple[dict[str, int], dict[int, dict[str, int]]]":
    """(totals, {CPU: ticks}). Raises ValueError."""
    total, cpus = {}, {}
    for row in text_lines(text):
        words = row.split()
        if not words:
            continue
        if words[0] == "cpu":
            total.update(cpu_ticks(words[1:]))
        elif words[0].startswith("cpu") and words[0][3:].isdigit():
            cpus[int(words[0][3:])] = cpu_ticks(words[1:])
        elif words[0] in COUNTED_ROWS:
            total[COUNTED_ROWS[words[0]]] = integer(words[1])
    if not total:
        raise ValueError("no row cpu in /proc/stat")
    return total, cpus


def parse_pressure(text: str) -> "dict[str, int]":
    """{some: total, full: total} in microseconds. Raises ValueError."""
    totals = {}
    for row in text_lines(text):
        words = row.split()
        for word in words[1:]:
            if word.startswith("total="):
                totals[words[0]] = integer(word[6:])
    return totals


def pressure(root: str) -> "tuple[dict[str, Any], dict[str, str]]":
    """({field: µs}, {field: why not}) of /proc/pressure."""
    values, why = {}, {}
    for kind in ("cpu", "io", "memory"):
        totals, error = attempt(
            lambda kind=kind: parse_pressure(read(root, "/proc/pressure/" + kind))
        )
        for resource, share in PRESSURE:
            if resource != kind:
                continue
            field = "{}_{}_us".format(kind, share)
            if totals is None or share not in totals:
                why[field] = error or "no {} in /proc/pressure/{}".format(share, kind)
            else:
                values[field] = totals[share]
    return values, why


def kilobytes(rows: "dict[str, str]", key: str) -> int:
    return integer(pick(rows, "/proc/meminfo", key).split()[0])


def memory(root: str) -> "tuple[dict[str, int | None], dict[str, str | None]]":
    """({field: number}, {field: why not}) of /proc/meminfo and /proc/vmstat."""
    values: "dict[str, int | None]" = {}
    why: "dict[str, str | None]" = {}
    rows, error = attempt(lambda: parse_rows(read(root, "/proc/meminfo")))
    for field, key in MEMINFO + (("total_kb", "MemTotal"),):
        values[field], why[field] = (None, error) if rows is None else attempt(kilobytes, rows, key)
    counts, error = attempt(
        lambda: dict(row.split(None, 1) for row in text_lines(read(root, "/proc/vmstat")))
    )
    for field, keys in VMSTAT:
        if counts is None:
            why[field] = error
            continue
        present = [counts[key] for key in keys if key in counts]
        if present:
            values[field], why[field] = attempt(sum, map(integer, present))
        else:
            why[field] = "no {} in /proc/vmstat".format(keys[0])
    return values, why


def is_disk(root: str, name: str) -> bool:
    """Whether a block device is not a partition."""
    return not os.path.exists(path_under(root, "/sys/class/block/{}/partition".format(name)))


def disks(root: str) -> "dict[str, dict[str, int]]":
    """{device: {field: number}} of /proc/diskstats. Raises OSError, ValueError."""
    numbers_by_disk = {}
    for row in text_lines(read(root, "/proc/diskstats")):
        words = row.split()
        if len(words) < 14 or words[2].startswith(("ram", "zram")):
            continue
        numbers = {field: integer(words[index]) for field, index in zip(DISK_FIELDS, DISK_PLACES)}
        numbers["busy_ms"] = integer(words[BUSY_PLACE])
        if numbers["reads"] or numbers["writes"]:
            numbers_by_disk[words[2]] = numbers
    return {name: numbers for name, numbers in numbers_by_disk.items() if is_disk(root, name)}


def nfs(root: str, request: "dict[str, Any]") -> "dict[tuple[str, str], dict[str, dict[str, int]]]":
    """{(mount point, source): {operation: {field: number}}}. Raises OSError, ValueError."""
    text = read_machine_file(root, FIRST, OWN, request.get("whole_machine", False))
    operations_by_mount = {}
    for point, source, _, rows in parse_blocks(text)[:NFS_MOST]:
        operations = {}
        for match in filter(None, map(NFS_ROW.match, rows)):
            words = match.group(2).split()
            numbers = {field: int(words[index]) for field, index in zip(NFS_FIELDS, NFS_PLACES)}
            numbers["execute_ms"] = int(words[EXECUTE_PLACE])
            operations[match.group(1)] = numbers
        operations_by_mount[(point, source)] = operations
    return operations_by_mount


def dropped_packets(root: str, folder: str) -> int:
    return sum(integer(line(root, folder + name)) for name in ("rx_dropped", "tx_dropped"))


def networks(root: str) -> "dict[str, dict[str, int | None]]":
    """{interface or port: {field: number}} of those with hardware. Raises OSError."""
    numbers_by_name = {}
    for name in names(root, "/sys/class/net"):
        folder = "/sys/class/net/{}/".format(name)
        if not os.path.exists(path_under(root, folder + "device")):
            continue
        statistics = folder + "statistics/"
        numbers_by_name[name] = {
            "speed_mb_s": attempt(lambda folder=folder: integer(line(root, folder + "speed")))[0],
            "received_b": attempt(lambda s=statistics: integer(line(root, s + "rx_bytes")))[0],
            "sent_b": attempt(lambda s=statistics: integer(line(root, s + "tx_bytes")))[0],
            "dropped": attempt(dropped_packets, root, statistics)[0],
        }
    devices, _ = attempt(names, root, "/sys/class/infiniband")
    for device in devices or ():
        ports = "/sys/class/infiniband/{}/ports".format(device)
        for port in attempt(names, root, ports)[0] or ():
            numbers_by_name["{}/{}".format(device, port)] = ib_port(
                root, "{}/{}/".format(ports, port)
            )
    return numbers_by_name


def ib_port(root: str, folder: str) -> "dict[str, int | None]":
    def words(name: str) -> int:
        return IB_WORD * integer(line(root, folder + "counters/" + name))

    rate, _ = attempt(lambda: float(line(root, folder + "rate").split()[0]))
    return {
        "speed_mb_s": None if rate is None else int(rate * 1000),
        "received_b": attempt(words, "port_rcv_data")[0],
        "sent_b": attempt(words, "port_xmit_data")[0],
        "dropped": attempt(lambda: integer(line(root, folder + "counters/port_xmit_discards")))[0],
    }


def interrupts(root: str) -> "dict[str, tuple[str, dict[int, int]]]":
    """{irq: (action, {CPU: count})} of GPUs, drives and network cards. Raises OSError."""
    head, *rows = text_lines(read(root, "/proc/interrupts"))
    cpus = [integer(word[3:]) for word in head.split()]
    counts_by_irq: "dict[str, tuple[str, dict[int, int]]]" = {}
    for row in rows:
        irq, _, text = row.partition(":")
        words = text.split()
        action = words[-1] if len(words) > len(cpus) else ""
        if len(counts_by_irq) < INTERRUPTS_MOST and INTERRUPTS.search(action):
            counts_by_irq[irq.strip()] = (action, dict(zip(cpus, map(integer, words[: len(cpus)]))))
    return counts_by_irq


class EndLook(object):
    """What only the first and the last look read."""

    def __init__(self, root: str, request: "dict[str, Any]") -> None:
        stat, why = attempt(lambda: parse_stat(read(root, "/proc/stat")))
        self.stat = (stat, why)
        self.cpus = (stat[1], None) if stat else (None, why)
        self.disks = attempt(disks, root)
        self.nfs = attempt(nfs, root, request)
        self.networks = attempt(networks, root)
        self.interrupts = attempt(interrupts, root)


def put_pairs(
    record: "Reading",
    field: str,
    ends: "list[EndLook]",
    record_of: "Callable[[Any, Any, Any], Reading]",
) -> None:
    """Set `field` to the records of the items in both looks; null if one was not read."""
    (first, why), (last, last_why) = [getattr(look, field) for look in ends]
    if first is None or last is None:
        record.fail(field, why or last_why)
    else:
        record[field] = [
            record_of(key, first[key], last[key]) for key in sorted(first) if key in last
        ]


def counter_record(
    fields: "Sequence[str]", **values: object
) -> "Callable[[dict[str, Any], dict[str, Any]], Reading]":
    """A function that makes a record of counters from their first and last values."""

    def make(first: "dict[str, Any]", last: "dict[str, Any]") -> "Reading":
        record = Reading(**values)
        put_counts(record, fields, first, last)
        return record

    return make


def cpu_of(number: int, first: "dict[str, int]", last: "dict[str, int]") -> "Reading":
    return counter_record(CPU_FIELDS, cpu=number)(first, last)


def disk_of(name: str, first: "dict[str, int]", last: "dict[str, int]") -> "Reading":
    return counter_record(DISK_FIELDS + ("busy_ms",), name=name)(first, last)


def network_of(
    name: str, first: "dict[str, int | None]", last: "dict[str, int | None]"
) -> "Reading":
    record = counter_record(NET_FIELDS, name=name)(first, last)
    speed = last["speed_mb_s"]
    if speed is None or speed <= 0:  # -1: no link
        record.fail("speed_mb_s", "the link has no speed")
    else:
        record["speed_mb_s"] = speed
    return record


def nfs_of(
    key: "tuple[str, str]", first: "dict[str, dict[str, int]]", last: "dict[str, dict[str, int]]"
) -> "Reading":
    record = Reading(point=key[0], source=key[1])
    record["operations"] = [
        counter_record(NFS_FIELDS + ("execute_ms",), name=name)(first.get(name, {}), last[name])
        for name in sorted(last)
        if last[name]["operations"] != first.get(name, {}).get("operations", 0)
    ]
    return record


def interrupt_of(
    irq: str, first: "tuple[str, dict[int, int]]", last: "tuple[str, dict[int, int]]"
) -> "Reading":
    record = Reading(irq=irq, action=last[0])
    growth = {cpu: count - first[1].get(cpu, 0) for cpu, count in last[1].items()}
    record["count"] = [sum(first[1].values()), sum(last[1].values())]
    record["cpu"] = max(growth, key=lambda cpu: growth[cpu]) if any(growth.values()) else None
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    watch = Watch("host_activity", root, request, share=SHARE)
    total, pressures, memories = Series(TOTALS), Series(pressure_fields()), Series(MEMORY)
    ends: "list[EndLook]" = []
    last_memory: "dict[str, int | None]" = {}
    for _ in watch.looks():
        if not ends or watch.is_last:
            ends.append(EndLook(root, request))
            stat, why = ends[-1].stat
        else:
            stat, why = attempt(lambda: parse_stat(read(root, "/proc/stat")))
        total.take(stat[0] if stat else {}, dict.fromkeys(TOTALS, why) if why else None)
        pressures.take(*pressure(root))
        last_memory, why = memory(root)
        memories.take(last_memory, why)
    return section_of(watch, total, pressures, memories, ends, last_memory)


def busiest(records: "list[Reading]", counts: "Sequence[str]") -> "tuple[list[Reading], int]":
    """(the records whose counters grew most, how many were left out)."""

    def total_growth(record: "Reading") -> int:
        return sum(record[field][1] - record[field][0] for field in counts if record[field])

    kept_records = sorted(records, key=total_growth, reverse=True)[:BUSIEST]
    return sorted(kept_records, key=lambda record: record["name"]), len(records) - len(kept_records)


def pressure_fields() -> "tuple[str, ...]":
    return tuple("{}_{}_us".format(*pair) for pair in PRESSURE)


def section_of(
    watch: "Watch",
    total: "Series",
    pressures: "Series",
    memories: "Series",
    ends: "list[EndLook]",
    last_memory: "dict[str, int | None]",
) -> "Reading":
    """The JSON form of nodevet.evidence.host_activity.HostActivity."""
    section = Reading(look=watch.look(), times_s=watch.times, tick_hz=HZ)
    for field, series in (("total", total), ("pressure", pressures), ("memory", memories)):
        section[field] = Reading()
        series.into(section[field])
    section["memory"]["total_kb"] = last_memory.get("total_kb")
    if section["memory"]["total_kb"] is None:
        section["memory"].fail("total_kb", memories.why.get("total_kb") or "not found")
    section["memory"]["page_b"] = os.sysconf("SC_PAGE_SIZE")
    ends = [ends[0], ends[-1]]
    put_pairs(section, "cpus", ends, cpu_of)
    put_pairs(section, "disks", ends, disk_of)
    put_pairs(section, "nfs", ends, nfs_of)
    put_pairs(section, "networks", ends, network_of)
    for field, counts in (("disks", DISK_FIELDS), ("networks", NET_FIELDS)):
        if section[field] is None:
            section.fail(field + "_left_out", section["errors"][field])
        else:
            section[field], section[field + "_left_out"] = busiest(section[field], counts)
    put_pairs(section, "interrupts", ends, interrupt_of)
    section["interrupts"] = section["interrupts"] and [
        row for row in section["interrupts"] if row["count"][0] != row["count"][1]
    ]
    return section
