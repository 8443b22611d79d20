"""What the processes of the GPUs do while they are watched: those that NVML names and all that
descends from them, with their threads and their cgroups.

/proc/<pid>/{stat,status,io,cgroup,cmdline,numa_maps}, /proc/<pid>/task/*, /sys/fs/cgroup.
Nothing is traced and no process is stopped. numa_maps is read of small processes only: the kernel
walks every page of a process for it, which holds up large ones.
"""

import os
import re

from nodevet.remote.probe.cgroups import Cgroup
from nodevet.remote.probe.collectors.host_activity import parse_pressure
from nodevet.remote.probe.collectors.processes import PIDS, parse_ids
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    line,
    names,
    parse_rows,
    path_under,
    read,
    read_bytes,
)
from nodevet.remote.probe.threads import small, stat_of, threads_of
from nodevet.remote.probe.watch import Watch, counted, cpu_s

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")
OFTEN = 5  # looks at the threads in each interval: what they wait for is seen in passing only
PROCESSES = 512
THREADS = 4096  # of all processes together
SHARE = 0.005  # of one core; five hundred threads take all of it in ten seconds
FIRST = 0.45  # of that share which the first look may take; the last takes as much
LEFT_OUT = "too many threads for the time: watch for longer"
SMALL_KB = 1 << 21  # resident memory above which numa_maps is not read
ARGUMENTS = 1000  # characters
HZ = os.sysconf("SC_CLK_TCK")
GONE = ("ENOENT", "ESRCH")
STACK = 64
STACK_ROW = re.compile(r"\[<[0-9a-f]+>\] ([\w.]{1,128})\+0x")
NODE = re.compile(r" N([0-9]+)=([0-9]+)")
KERNEL_PAGE = re.compile(r" kernelpagesize_kB=([0-9]+)")
STAT = ("user", "system", "children_user", "children_system", "major_faults", "io_delay_ticks")
IO = (
    ("read_calls", "syscr"),
    ("read_b", "rchar"),
    ("storage_read_b", "read_bytes"),
    ("storage_written_b", "write_bytes"),
)
COUNTS = STAT + tuple(field for field, _ in IO)
PSI = (
    ("cpu_some_us", "cpu", "some"),
    ("io_full_us", "io", "full"),
    ("memory_full_us", "memory", "full"),
    ("memory_some_us", "memory", "some"),
)
THROTTLING = ("periods", "throttled", "throttled_us")
CGROUP_COUNTS = THROTTLING + ("memory_events_max",) + tuple(field for field, _, _ in PSI)


def gpus_of_pids(found):
    """{pid: [GPU index]}: as NVML names them; those that hold /dev/nvidia<N> open where NVML names
    none at all, as in a container."""
    gpus = ((found.get("gpu") or {}).get("data") or {}).get("gpus") or ()
    named, minors = {}, {}
    for gpu in gpus:
        minors[gpu.get("minor_number")] = gpu["index"]
        for process in gpu.get("processes") or ():
            named.setdefault(process["pid"], []).append(gpu["index"])
    if named:
        return named
    held = ((found.get("processes") or {}).get("data") or {}).get("processes") or ()
    for process in held:
        some = [minors[minor] for minor in process.get("gpu_minors") or () if minor in minors]
        if some:
            named[process["pid"]] = some
    return named


def parents(root):
    """{pid: its parent} of every process. Raises OSError, ValueError."""
    found = {}
    for name in names(root, "/proc", PIDS):
        if name.isdigit():
            stat, _ = attempt(stat_of_pid, root, name)
            if stat:
                found[int(name)] = stat["parent"]
    return found


def stat_of_pid(root, pid):
    return stat_of(small(path_under(root, "/proc/{}/stat".format(pid))))


def with_descendants(pids, parent_of):
    """These and all that descends from them, parents first."""
    children = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    ordered, ahead = [], sorted(pid for pid in pids if pid in parent_of)
    seen = set()
    while ahead:
        pid = ahead.pop(0)
        if pid not in seen:
            seen.add(pid)
            ordered.append(pid)
            ahead.extend(sorted(children.get(pid, ())))
    return ordered


def numa_pages(text):
    """{node: pages of 4 KiB} of numa_maps."""
    found = {}
    for row in text.splitlines():
        size = KERNEL_PAGE.search(row)
        unit = int(size.group(1)) // 4 if size else 1
        for node, count in NODE.findall(row):
            found[node] = found.get(node, 0) + unit * int(count)
    return found


class WatchedProcess(object):
    """One process while it is watched."""

    def __init__(self, root, pid, gpus):
        self.root = root
        self.pid = pid
        self.gpus = gpus
        self.place = "/proc/{}/".format(pid)
        self.folder = path_under(root, self.place).rstrip("/") + "/"
        self.first, self.last, self.why = {}, {}, {}
        self.threads, self.no_threads = [], "it ended"
        self.pages = (None, "it was not read")
        self.cgroup = attempt(lambda: Cgroup(root, read(root, self.place + "cgroup")))

    def count(self):
        """Its counters now."""
        stat, why = attempt(lambda: stat_of(small(self.folder + "stat")))
        if stat is None:
            self.end("it ended" if why in GONE else why)
            return
        if self.first and stat["started"] != self.first["started"]:
            self.end("it ended, and another process has its number")
            return
        self.last.update(stat)
        rows, why = attempt(lambda: parse_rows(small(self.folder + "io").decode("ascii")))
        for field, key in IO:
            self.last[field], problem = (
                (None, why) if rows is None else attempt(lambda key=key: integer(rows[key]))
            )
            if problem:
                self.why[field] = problem
        if not self.first:
            self.first = dict(self.last)

    def end(self, why):
        """Its counters are not known any more: no growth is told, least of all none."""
        if self.last:
            self.last.update(dict.fromkeys(COUNTS))
        self.why.update(dict.fromkeys(COUNTS, why))

    def read_pages(self):
        if self.last.get("resident_pages", 0) * os.sysconf("SC_PAGE_SIZE") >> 10 > SMALL_KB:
            self.pages = (None, "not read of a process of more than 2 GiB: it would hold it up")
        else:
            self.pages = attempt(lambda: numa_pages(read_numa(self.root, self.place)))

    def told(self, looks):
        """The JSON form of nodevet.evidence.process_activity.ProcessActivity."""
        record = Reading(pid=self.pid, gpus=sorted(self.gpus))
        if self.last:
            record["parent"], record["command"] = self.last["parent"], self.last["name"]
            record["started_s"] = self.last["started"] / float(HZ)
            record["threads_total"] = self.last["threads"]
            record["resident_kb"] = self.last["resident_pages"] * os.sysconf("SC_PAGE_SIZE") >> 10
        else:
            record.fail_all(("parent", "command", "started_s"), self.why.get("user", "it ended"))
        counted(record, COUNTS, self.first, self.last)
        record["errors"].update(self.why)
        self.tell_status(record)
        if ran(record):
            record.fail("stack", "it ran")
        else:
            record.take("stack", stack, self.root, self.place)
        if self.no_threads:
            record.fail("threads", self.no_threads)
        else:
            record["threads"] = [thread.told(looks) for thread in self.threads]
        record["pages"], why = self.pages
        if why:
            record["errors"]["pages"] = why
        cgroup, why = self.cgroup
        record["cgroup"] = cgroup.path if cgroup else None
        if why:
            record["errors"]["cgroup"] = why
        return record

    def tell_status(self, record):
        rows, why = attempt(lambda: parse_rows(read(self.root, self.place + "status")))
        if rows is None:
            record.fail_all(("uid", "cpus_allowed", "swapped_kb"), why)
        else:
            record.take("uid", lambda: integer(rows["Uid"].split()[0]))
            record.take("cpus_allowed", parse_ids, rows, "Cpus_allowed_list")
            record.take("swapped_kb", lambda: integer(rows["VmSwap"].split()[0]))
        record.take("arguments", arguments, self.root, self.place)


def ran(record):
    """Whether a process used any CPU time; so it is if that is not known."""
    pairs = (record["user"], record["system"])
    return None in pairs or any(first != last for first, last in pairs)


def stack(root, place):
    """The kernel's functions in which a process sleeps. Raises OSError: only root may see them."""
    rows = read(root, place + "stack").splitlines()
    found = [STACK_ROW.match(row) for row in rows]
    return [match.group(1) for match in found if match][:STACK]


def read_numa(root, place):
    return read(root, place + "numa_maps")


def arguments(root, place):
    data = read_bytes(root, place + "cmdline", 4 * ARGUMENTS)
    return " ".join(data.decode("utf-8", "backslashreplace").split("\0")).strip()[:ARGUMENTS]


class WatchedCgroup(object):
    """One cgroup while it is watched."""

    def __init__(self, cgroup):
        self.cgroup = cgroup
        self.first, self.last, self.why = {}, {}, {}

    def count(self):
        found, why = attempt(self.cgroup.throttling)
        self.last.update(found or dict.fromkeys(THROTTLING))
        events, problem = attempt(self.cgroup.memory_events)
        self.last["memory_events_max"] = events
        self.why.update(dict.fromkeys(THROTTLING, why), memory_events_max=problem)
        for field, kind, each in PSI:
            totals, problem = attempt(lambda kind=kind: parse_pressure(self.cgroup.pressure(kind)))
            self.last[field] = (totals or {}).get(each)
            self.why[field] = problem
        if not self.first:
            self.first = dict(self.last)

    def told(self):
        """The JSON form of nodevet.evidence.process_activity.CgroupActivity."""
        record = Reading(path=self.cgroup.path, version=2 if self.cgroup.v2 else 1)
        for field in ("cpu_quota", "cpus", "memory_limit_b", "memory_used_b", "pages_b"):
            record.take(field, getattr(self.cgroup, field))
        counted(record, CGROUP_COUNTS, self.first, self.last)
        record["errors"].update({field: why for field, why in self.why.items() if why})
        return record


class Watched(object):
    """All that is watched."""

    def __init__(self, root, found):
        self.complete = True
        gpus = gpus_of_pids(found)
        pids = with_descendants(gpus, parents(root))
        self.complete = set(gpus) <= set(pids) and len(pids) <= PROCESSES
        self.processes = [WatchedProcess(root, pid, gpus.get(pid, [])) for pid in pids[:PROCESSES]]
        self.groups = {}
        for process in self.processes:
            if process.cgroup[0] and process.cgroup[0].path:
                self.groups.setdefault(process.cgroup[0].path, WatchedCgroup(process.cgroup[0]))

    def find_threads(self, root, allowed_s):
        """The threads of as many processes as may be watched in the time: all of a process, or
        none."""
        end, left = cpu_s() + allowed_s, THREADS
        for process in self.processes:
            threads, why = attempt(threads_of, root, process.pid)
            if threads is not None and (len(threads) > left or cpu_s() > end):
                threads, why = None, LEFT_OUT
            for thread in threads or ():
                thread.look(True)
            left -= len(threads or ())
            process.threads, process.no_threads = threads or [], why
            self.complete = self.complete and threads is not None

    def look(self, whole):
        for process in self.processes:
            if whole:
                process.count()
            for thread in process.threads:
                if whole or thread.tid == process.pid or thread.is_active():
                    thread.look(whole)
                else:
                    thread.skip()
        if whole:
            for group in self.groups.values():
                group.count()


def collect(root, request):
    watch = Watch("process_activity", root, request, OFTEN, SHARE)
    watched = Watched(root, request.get("found", {}))
    uptime, _ = attempt(lambda: float(line(root, "/proc/uptime").split()[0]))
    for _ in watch.looks():
        if len(watch.times) == 1:
            for process in watched.processes:
                process.count()
            for group in watched.groups.values():
                group.count()
            watched.find_threads(root, watch.wanted * SHARE * FIRST)
        else:
            watched.look(watch.is_last)
    for process in watched.processes:
        process.read_pages()
    looks = len(watch.times)
    found = Reading(look=watch.look(), times_s=watch.times, tick_hz=HZ, uptime_s=uptime)
    found["complete"] = watched.complete
    found["processes"] = [process.told(looks) for process in watched.processes]
    found["cgroups"] = [watched.groups[path].told() for path in sorted(watched.groups)]
    return found
