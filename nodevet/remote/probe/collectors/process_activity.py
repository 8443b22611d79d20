"""What the processes of the GPUs do while they are watched: those that NVML names and all that
descends from them, with their threads and their cgroups.

/proc/<pid>/{stat,status,io,cgroup,cmdline,numa_maps}, /proc/<pid>/task/*, /sys/fs/cgroup.
What is born meanwhile is found by /proc/loadavg, which has the newest number, and by what /proc
lists then: whatever thread forked, and without asking each of them for its children.
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
from nodevet.remote.probe.threads import WatchedThread, small, stat_of, threads_of
from nodevet.remote.probe.watch import Watch, counted, cpu_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")
OFTEN = 5  # looks at the threads in each interval: what they wait for is seen in passing only
PROCESSES = 512
THREADS = 4096  # of all processes together
SHARE = 0.005  # of one core; five hundred threads take all of it in ten seconds
FIRST = 0.45  # of that share which the first look may take; the last takes as much
FEW = 64  # threads that are watched whatever the first look takes
LEFT_OUT = "too many threads for the time: watch for longer"
SMALL_KB = 1 << 21  # resident memory above which numa_maps is not read
ARGUMENTS = 1000  # characters
HZ = os.sysconf("SC_CLK_TCK")
GONE = ("ENOENT", "ESRCH")
BRIEF = 10  # ticks of CPU time: what was born and ended with less is left to its parent's count
ROUND = 8  # threads, or processes, that are looked at before the time is looked at again
WOKEN = 0.1  # of a core that threads used which were not looked at
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


def gpus_of_pids(found: "dict[str, Any]") -> "dict[int, list[int]]":
    """{pid: [GPU index]}: as NVML names them; those that hold /dev/nvidia<N> open where NVML names
    none at all, as in a container."""
    gpus = ((found.get("gpu") or {}).get("data") or {}).get("gpus") or ()
    named: "dict[int, list[int]]" = {}
    minors = {}
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


def parents(root: str) -> "dict[int, int]":
    """{pid: its parent} of every process. Raises OSError, ValueError."""
    found = {}
    for name in names(root, "/proc", PIDS):
        if name.isdigit():
            stat, _ = attempt(stat_of_pid, root, name)
            if stat:
                found[int(name)] = stat["parent"]
    return found


def stat_of_pid(root: str, pid: int) -> "dict[str, Any]":
    return stat_of(small(path_under(root, "/proc/{}/stat".format(pid))))


def with_descendants(pids: "Iterable[int]", parent_of: "dict[int, int]") -> "list[int]":
    """These and all that descends from them, parents first."""
    children: "dict[int, list[int]]" = {}
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


def numa_pages(text: str) -> "dict[str, int]":
    """{node: pages of 4 KiB} of numa_maps."""
    found: "dict[str, int]" = {}
    for row in text.splitlines():
        size = KERNEL_PAGE.search(row)
        unit = int(size.group(1)) // 4 if size else 1
        for node, count in NODE.findall(row):
            found[node] = found.get(node, 0) + unit * int(count)
    return found


class WatchedProcess(object):
    """One process while it is watched."""

    def __init__(
        self, root: str, pid: int, gpus: "list[int]", born_s: "float | None" = None
    ) -> None:
        """`born_s`: when it was seen first, of one that was not there at the first look; all that
        it did was while it was watched."""
        self.root = root
        self.pid = pid
        self.gpus = gpus
        self.born_s = born_s
        self.seen_s: "float | None" = None
        self.ended_s: "float | None" = None
        self.place = "/proc/{}/".format(pid)
        self.folder = path_under(root, self.place).rstrip("/") + "/"
        self.first = {} if born_s is None else dict.fromkeys(COUNTS, 0)
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}
        self.heir: "int | None" = None  # the parent of whoever has its number now
        self.name: "str | None" = None
        self.was: "str | None" = None  # its name before it became another program
        self.threads: "list[WatchedThread]" = []
        self.no_threads: "str | None" = "it ended"
        self.has_more = False  # threads than those
        self.pages: "tuple[dict[str, int] | None, Any]" = (None, "it was not read")
        self.status: "tuple[dict[str, str] | None, Any]" = (None, "it ended")
        self.cgroup = attempt(lambda: Cgroup(root, read(root, self.place + "cgroup")))

    def count(self, at: float = 0.0) -> bool:
        """Its counters now; whether it is still there."""
        if self.ended_s is not None:
            return False
        stat, why = attempt(lambda: stat_of(small(self.folder + "stat")))
        if stat is None:
            if why in GONE:
                self.end("it ended", at)
            else:
                self.last.update(dict.fromkeys(COUNTS))
                self.why.update(dict.fromkeys(COUNTS, why))
            return False
        if self.last and stat["started"] != self.last["started"]:
            self.heir = stat["parent"]
            self.end("it ended, and another process has its number", at)
            return False
        if self.name not in (None, stat["name"]) and self.was is None:
            self.was = self.name
        self.name = stat["name"]
        rows, why = attempt(lambda: parse_rows(small(self.folder + "io").decode("ascii")))
        if why in GONE and not os.path.exists(self.folder + "stat"):
            self.end("it ended", at)
            return False
        self.seen_s = at
        self.last.update(stat)
        for field, key in IO:
            self.last[field], problem = (
                (None, why) if rows is None else attempt(lambda key=key: integer(rows[key]))
            )
            if problem:
                self.why[field] = problem
        if not self.first:
            self.first = dict(self.last)
        return True

    def end(self, why: str, at: float) -> None:
        """What it did after it was seen last is not known, and least of all nothing."""
        if self.ended_s is None:
            self.ended_s = at
        if not self.last:
            self.why.update(dict.fromkeys(COUNTS, why))

    def is_brief(self) -> bool:
        """Whether it was born and ended meanwhile, and did next to nothing that was seen."""
        ticks = sum(self.last.get(field) or 0 for field in STAT[:2])
        return None not in (self.born_s, self.ended_s) and ticks < BRIEF

    def find_threads(self, most: int) -> int:
        """Its threads that were not found before, `most` at most: all of them, or none. Returns
        how many there are."""
        known = {thread.tid for thread in self.threads}
        born_s = None if not self.seen_s else self.seen_s
        found, why = attempt(threads_of, self.root, self.pid, known, born_s)
        if found is None:
            if not self.threads:
                self.no_threads = why
            return 0
        if len(found) > most:
            self.has_more = True
            if not self.threads:
                self.no_threads = LEFT_OUT
            return 0
        self.threads += found
        self.no_threads = None
        return len(found)

    def read_pages(self) -> None:
        if self.last.get("resident_pages", 0) * os.sysconf("SC_PAGE_SIZE") >> 10 > SMALL_KB:
            self.pages = (None, "not read of a process of more than 2 GiB: it would hold it up")
        else:
            self.pages = attempt(lambda: numa_pages(read_numa(self.root, self.place)))

    def told(self, looks: int) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.ProcessActivity."""
        record = Reading(pid=self.pid, gpus=sorted(self.gpus))
        record.update(born_s=self.born_s, seen_s=self.seen_s, ended_s=self.ended_s)
        record["command_before"] = self.was
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
        if self.ended_s is not None:
            record.fail("stack", "it ended")
        elif ran(record):
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

    def read_status(self) -> None:
        rows = attempt(lambda: parse_rows(read(self.root, self.place + "status")))
        if rows[0] is not None or self.status[0] is None:
            self.status = rows

    def tell_status(self, record: "Reading") -> None:
        if self.ended_s is None:
            self.read_status()
        rows, why = self.status
        if rows is None:
            record.fail_all(("uid", "cpus_allowed", "swapped_kb"), why)
        else:
            record.take("uid", lambda: integer(rows["Uid"].split()[0]))
            record.take("cpus_allowed", parse_ids, rows, "Cpus_allowed_list")
            record.take("swapped_kb", lambda: integer(rows["VmSwap"].split()[0]))
        if self.ended_s is None:
            record.take("arguments", arguments, self.root, self.place)
        else:
            record.fail("arguments", "it ended")


def ran(record: "Reading") -> bool:
    """Whether a process used any CPU time; so it is if that is not known."""
    pairs = (record["user"], record["system"])
    return None in pairs or any(first != last for first, last in pairs)


def stack(root: str, place: str) -> "list[str]":
    """The kernel's functions in which a process sleeps. Raises OSError: only root may see them."""
    rows = read(root, place + "stack").splitlines()
    found = [STACK_ROW.match(row) for row in rows]
    return [match.group(1) for match in found if match][:STACK]


def read_numa(root: str, place: str) -> str:
    return read(root, place + "numa_maps")


def arguments(root: str, place: str) -> str:
    data = read_bytes(root, place + "cmdline", 4 * ARGUMENTS)
    return " ".join(data.decode("utf-8", "backslashreplace").split("\0")).strip()[:ARGUMENTS]


class WatchedCgroup(object):
    """One cgroup while it is watched."""

    def __init__(self, cgroup: "Cgroup") -> None:
        self.cgroup = cgroup
        self.first: "dict[str, Any]" = {}
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}

    def count(self) -> None:
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

    def told(self) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.CgroupActivity."""
        record = Reading(path=self.cgroup.path, version=2 if self.cgroup.v2 else 1)
        for field in ("cpu_quota", "cpus", "memory_limit_b", "memory_used_b", "pages_b"):
            record.take(field, getattr(self.cgroup, field))
        counted(record, CGROUP_COUNTS, self.first, self.last)
        record["errors"].update({field: why for field, why in self.why.items() if why})
        return record


class Watched(object):
    """All that is watched."""

    def __init__(self, root: str, found: "dict[str, Any]") -> None:
        self.root = root
        gpus = gpus_of_pids(found)
        self.newest = newest(root)
        parent_of = parents(root)
        self.known = set(parent_of)
        pids = with_descendants(gpus, parent_of)
        self.complete = set(gpus) <= set(pids) and len(pids) <= PROCESSES
        self.processes = [WatchedProcess(root, pid, gpus.get(pid, [])) for pid in pids[:PROCESSES]]
        self.groups: "dict[str, WatchedCgroup]" = {}
        self.births = self.deaths = 0
        self.left_out = max(0, len(pids) - PROCESSES)
        self.next_process = self.next_thread = 0  # whose turn it is
        # pid: (at, ticks of the process, of its threads that were looked at)
        self.counted: "dict[int, tuple[float, int, int]]" = {}
        for process in self.processes:
            self.add_group(process)

    def add_group(self, process: "WatchedProcess") -> "WatchedCgroup | None":
        """Watch the cgroup of a process; a new one if there is none yet."""
        group, _ = process.cgroup
        if group and group.path and group.path not in self.groups and len(self.groups) < PROCESSES:
            self.groups[group.path] = WatchedCgroup(group)
            return self.groups[group.path]
        return None

    def begin(self, watch: "Watch", allowed_s: float) -> None:
        """The first look. Threads are those of as many processes as may be watched in the time:
        all of a process, or none."""
        self.find_births(watch, True)
        for process in self.processes:
            process.count()
            process.read_status()
        for group in self.groups.values():
            group.count()
        end, left = cpu_s() + allowed_s, THREADS
        for process in self.processes:
            few = max(0, FEW - (THREADS - left))
            left -= process.find_threads(left if cpu_s() <= end else min(left, few) or -1)
            for thread in process.threads:
                thread.look(True)

    def look(self, watch: "Watch", whole: bool) -> None:
        """A look at what is active; the last one, `whole`, at everything."""
        at = watch.times[-1]
        if whole:
            self.find_births(watch, True)
        for process in self.processes:
            if whole and process.born_s != at:
                process.count(at)
                if process.ended_s is None:
                    self.add_threads(process, at)
            for thread in process.threads:
                if thread.looked_s == at:
                    continue
                if process.ended_s is not None:
                    thread.ended_s = process.ended_s if thread.ended_s is None else thread.ended_s
                    thread.skip()
                elif whole or thread.tid == process.pid or thread.is_active():
                    thread.look(whole, at)
                else:
                    thread.skip()
        if whole:
            for group in self.groups.values():
                group.count()

    def search(self, watch: "Watch") -> None:
        """What was born since, and what does more than is looked at; as far as the looks' share
        goes."""
        at = watch.times[-1]
        if watch.spare_s() > 0:
            self.find_births(watch, False)
        turns = [process for process in self.processes if process.ended_s is None]
        for number in range(len(turns)):
            if number % ROUND == 0 and watch.spare_s() <= 0:
                return
            self.next_process = (self.next_process + 1) % len(turns)
            self.see(turns[self.next_process], at)
        resting = [t for p in turns for t in p.threads if t.looked_s != at and t.ended_s is None]
        for number in range(len(resting)):
            if number % ROUND == 0 and watch.spare_s() <= 0:
                return
            self.next_thread = (self.next_thread + 1) % len(resting)
            look_again(resting[self.next_thread], at)

    def see(self, process: "WatchedProcess", at: float) -> None:
        """Look at all threads of a process that used more CPU time than those looked at, and at
        those that are new."""
        if not process.count(at):
            return
        whole = process.last["user"] + process.last["system"]
        seen = sum(t.last.get("user", 0) + t.last.get("system", 0) for t in process.threads)
        before = self.counted.get(process.pid)
        self.counted[process.pid] = (at, whole, seen)
        if process.last["threads"] > sum(t.ended_s is None for t in process.threads):
            self.add_threads(process, at)
        if before and (whole - before[1]) - (seen - before[2]) > WOKEN * HZ * (at - before[0]):
            for thread in process.threads:
                if thread.looked_s != at:
                    look_again(thread, at)

    def add_threads(self, process: "WatchedProcess", at: float) -> None:
        """The threads that a process has got meanwhile."""
        if process.no_threads is not None and process.born_s is None:
            return  # left out from the beginning
        before = len(process.threads)
        process.find_threads(THREADS - sum(len(each.threads) for each in self.processes))
        for thread in process.threads[before:]:
            thread.look(True, at)

    def find_births(self, watch: "Watch", everything: bool) -> None:
        """Processes that descend from those that are watched, and were not there before."""
        at, last = watch.times[-1], newest(self.root)
        if last is not None and last == self.newest:
            return
        found, _ = attempt(names, self.root, "/proc", PIDS)
        if found is None:
            return
        listed = {int(name) for name in found if name.isdigit()}
        fresh, self.known, self.newest = sorted(listed - self.known), listed, last
        parent_of = {p.pid: p.last.get("parent", 0) for p in self.processes if p.last}
        for number, pid in enumerate(fresh):
            if number % ROUND == 0 and not everything and watch.spare_s() <= 0:
                self.known -= set(fresh[number:])  # their turn comes
                self.newest = None
                break
            stat, _ = attempt(stat_of_pid, self.root, pid)
            if stat:
                parent_of[pid] = stat["parent"]
        watched = {process.pid for process in self.processes}
        for pid in with_descendants([p for p in watched if p in parent_of], parent_of):
            if pid not in watched:
                self.add(pid, at if len(watch.times) > 1 else None)

    def add(self, pid: int, at: "float | None") -> None:
        """Watch a process that was born meanwhile; without `at` it is there from the first look."""
        self.drop_brief()
        if len(self.processes) >= PROCESSES:
            self.left_out += 1
            return
        process = WatchedProcess(self.root, pid, [], at)
        group = self.add_group(process)
        self.processes.append(process)
        if at is None:
            return  # all are looked at now
        self.births += 1
        process.count(at)
        process.read_status()
        self.add_threads(process, at)
        if group:
            group.count()

    def drop_brief(self) -> None:
        """What only its number is told of."""
        brief = [each for each in self.processes if each.is_brief()]
        self.deaths += len(brief)
        self.left_out += self.heirs(brief)
        self.processes = [each for each in self.processes if each not in brief]

    def heirs(self, processes: "Iterable[WatchedProcess]") -> int:
        """How many of these numbers another process of the job has got; it was not watched."""
        watched = {process.pid for process in self.processes}
        return sum(process.heir in watched for process in processes)


def look_again(thread: "WatchedThread", at: float) -> None:
    """At a thread that this look had skipped."""
    del thread.states[-1], thread.ticks[-1]
    thread.look(False, at)


def newest(root: str) -> "int | None":
    """The number that was given last to a process or thread; None if that cannot be read."""
    return attempt(lambda: integer(line(root, "/proc/loadavg").split()[4]))[0]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    watch = Watch("process_activity", root, request, OFTEN, SHARE)
    watched = Watched(root, request.get("found", {}))
    watch.wait()
    uptime, _ = attempt(lambda: float(line(root, "/proc/uptime").split()[0]))
    searched = 0.0
    for at in watch.looks():
        if len(watch.times) == 1:
            watched.begin(watch, watch.wanted * SHARE * FIRST)
            continue
        watched.look(watch, watch.is_last)
        if not watch.is_last and at - searched > (OFTEN - 0.5) * watch.interval:
            searched = at
            watched.search(watch)
    watched.drop_brief()
    for process in watched.processes:
        process.read_pages()
    looks = len(watch.times)
    ended = sum(process.ended_s is not None for process in watched.processes)
    found = Reading(look=watch.look(), times_s=watch.times, tick_hz=HZ, uptime_s=uptime)
    found["left_out"] = watched.left_out + watched.heirs(watched.processes)
    found["complete"] = (
        watched.complete
        and not found["left_out"]
        and not any(
            process.has_more or (process.no_threads and process.ended_s is None)
            for process in watched.processes
        )
    )
    found["born"], found["ended"] = watched.births, watched.deaths + ended
    found["processes"] = [process.told(looks) for process in watched.processes]
    found["cgroups"] = [watched.groups[path].told() for path in sorted(watched.groups)]
    return found
