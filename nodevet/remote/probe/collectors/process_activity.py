"""What the processes of the GPUs do while nodevet watches them: those that NVML names and their
descendants, with threads and cgroups.

/proc/<pid>/{stat,status,io,cgroup,cmdline,numa_maps}, /proc/<pid>/task/*, /sys/fs/cgroup; what its
threads sleep for: nodevet.remote.probe.sleeps.
/proc/loadavg has the newest pid and so reveals new processes; then /proc lists them, without
reading the children of each thread. Nothing is traced or stopped. numa_maps is read only for small
processes: the kernel walks all pages of a process, which delays large ones.
"""

import os
import re
import time

from nodevet.remote.probe.apart import read_apart
from nodevet.remote.probe.cgroups import Cgroup
from nodevet.remote.probe.collectors.host_activity import parse_pressure
from nodevet.remote.probe.collectors.processes import PIDS, parse_ids
from nodevet.remote.probe.connections import Connections
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    flag,
    integer,
    line,
    names,
    parse_rows,
    path_under,
    read,
    read_bytes,
    text_lines,
)
from nodevet.remote.probe.flight import Dumps
from nodevet.remote.probe.job_names import (
    job_id,
    job_variables,
    login_of,
    master,
    pod_name,
    rank_of,
    step_id,
)
from nodevet.remote.probe.others import Others, stats
from nodevet.remote.probe.sleeps import SleepingProcess, Tables, sleepers
from nodevet.remote.probe.threads import (
    ENDED,
    WatchedThread,
    parse_stat_row,
    read_small,
    run_times,
    threads_of,
)
from nodevet.remote.probe.watch import HZ, Watch, budget_s, cpu_s, put_counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Iterable, Sequence

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")
LOOKS_PER_INTERVAL = 5  # looks at threads, to see what they wait for
PROCESSES = 512
THREADS = 4096  # of all processes together
CALLS = 16  # threads at a look whose system call is read; at the first and last four times as many
SHARE = 0.005  # of one core; five hundred threads take all of it in ten seconds
FIRST = 0.45  # of that share for the first look; the last takes as much
ALWAYS_WATCHED = 64  # threads that are watched in any case
SAMPLED = 32  # threads of a process that has too many: those that used most CPU time
THREAD_S = 40e-6  # CPU time to look at a thread at the first look
SAMPLE_S = 7e-6  # CPU time to read how long a thread ran
LEFT_OUT = "too many threads for the time: watch for longer"
DUMPS_S = 5.0  # for the files of all dumps: they take 3 s of CPU time at most
SMALL_KB = 1 << 21  # resident memory above which numa_maps is not read
ARGUMENTS = 1000  # characters
BRIEF = 10  # ticks of CPU time: a shorter new process counts for its parent only
ROUND = 8  # threads or processes between two checks of the time
WOKEN = 0.1  # of a core, used by resting threads
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


def gpus_of_pids(results: "dict[str, Any]") -> "dict[int, list[int]]":
    """{pid: [GPU index]} by NVML; if it names none, as in a container, of the processes that hold
    /dev/nvidia<N> open."""
    gpus = ((results.get("gpu") or {}).get("data") or {}).get("gpus") or ()
    gpus_by_pid: "dict[int, list[int]]" = {}
    minors = {}
    for gpu in gpus:
        minors[gpu.get("minor_number")] = gpu["index"]
        for process in gpu.get("processes") or ():
            gpus_by_pid.setdefault(process["pid"], []).append(gpu["index"])
    if gpus_by_pid:
        return gpus_by_pid
    processes = ((results.get("processes") or {}).get("data") or {}).get("processes") or ()
    for process in processes:
        gpu_indexes = [
            minors[minor] for minor in process.get("gpu_minors") or () if minor in minors
        ]
        if gpu_indexes:
            gpus_by_pid[process["pid"]] = gpu_indexes
    return gpus_by_pid


def stat_of_pid(root: str, pid: int) -> "dict[str, Any]":
    return parse_stat_row(read_small(path_under(root, "/proc/{}/stat".format(pid))))


def with_descendants(pids: "Iterable[int]", parent_of: "dict[int, int]") -> "list[int]":
    """These and their descendants, parents first."""
    children: "dict[int, list[int]]" = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    order, waiting = [], sorted(pid for pid in pids if pid in parent_of)
    visited = set()
    while waiting:
        pid = waiting.pop(0)
        if pid not in visited:
            visited.add(pid)
            order.append(pid)
            waiting.extend(sorted(children.get(pid, ())))
    return order


def numa_pages(text: str) -> "dict[str, int]":
    """{node: pages of 4 KiB} of numa_maps."""
    pages: "dict[str, int]" = {}
    for row in text_lines(text):
        size = KERNEL_PAGE.search(row)
        unit = int(size.group(1)) // 4 if size else 1
        for node, count in NODE.findall(row):
            pages[node] = pages.get(node, 0) + unit * int(count)
    return pages


class WatchedProcess(SleepingProcess):
    """A watched process."""

    def __init__(
        self, root: str, pid: int, gpus: "list[int]", born_s: "float | None" = None
    ) -> None:
        """`born_s`: when a process was first seen that did not exist at the first look; its
        counters began at 0."""
        self.node_folder = "/proc/{}/".format(pid)
        folder = path_under(root, self.node_folder).rstrip("/") + "/"
        super(WatchedProcess, self).__init__(pid, folder, gpus)
        self.root = root
        self.born_s = born_s
        self.seen_s: "float | None" = None
        self.ended_s: "float | None" = None
        self.first = {} if born_s is None else dict.fromkeys(COUNTS, 0)
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}
        self.heir: "int | None" = None  # parent of the next process with its pid
        self.name: "str | None" = None
        self.name_before: "str | None" = None  # its name before it became another program
        self.no_threads: "str | None" = "it ended"
        self.has_more = False  # threads than those
        self.ran: "dict[int, int]" = {}  # thread: nanoseconds that it had run at the last sample
        self.pages: "tuple[dict[str, int] | None, Any]" = (None, "it was not read")
        self.status: "tuple[dict[str, str] | None, Any]" = (None, "it ended")
        self.cgroup = attempt(lambda: Cgroup(root, read(root, self.node_folder + "cgroup")))
        self.variables: "tuple[dict[str, str] | None, Any]" = ({}, None)
        self.is_rank = bool(gpus)  # or a process of the job that was asked for
        if gpus:  # now, because a process that ends has none
            self.variables = attempt(job_variables, root, self.node_folder)

    def count(self, seconds: float = 0.0) -> bool:
        """Read its counters; False if it has ended."""
        if self.ended_s is not None:
            return False
        stat, why = attempt(lambda: parse_stat_row(read_small(self.folder + "stat")))
        if stat is None:
            if why in ENDED:
                self.end("it ended", seconds)
            else:
                self.last.update(dict.fromkeys(COUNTS))
                self.why.update(dict.fromkeys(COUNTS, why))
            return False
        if self.last and stat["started"] != self.last["started"]:
            self.heir = stat["parent"]
            self.end("it ended, and another process has its number", seconds)
            return False
        if self.name not in (None, stat["name"]) and self.name_before is None:
            self.name_before = self.name
        self.name = stat["name"]
        rows, why = attempt(lambda: parse_rows(read_small(self.folder + "io").decode("ascii")))
        if why in ENDED and not os.path.exists(self.folder + "stat"):
            self.end("it ended", seconds)
            return False
        self.seen_s = seconds
        self.last.update(stat)
        for field, key in IO:
            self.last[field], error = (
                (None, why) if rows is None else attempt(lambda key=key: integer(rows[key]))
            )
            if error:
                self.why[field] = error
        if not self.first:
            self.first = dict(self.last)
        return True

    def end(self, why: str, seconds: float) -> None:
        """Record its end; its counters since the last look are unknown."""
        if self.ended_s is None:
            self.ended_s = seconds
        if not self.last:
            self.why.update(dict.fromkeys(COUNTS, why))

    def is_brief(self) -> bool:
        """Whether it began and ended meanwhile, and did almost nothing."""
        ticks = sum(self.last.get(field) or 0 for field in STAT[:2])
        return None not in (self.born_s, self.ended_s) and ticks < BRIEF

    def find_threads(self, most: int) -> int:
        """Add its new threads if they are at most `most`; returns how many it added."""
        self.has_more = self.has_more or (self.last.get("threads") or 0) > max(1, most)
        if self.has_more:
            self.no_threads = LEFT_OUT if not self.threads else None
            return 0
        known_ids = {thread.tid for thread in self.threads}
        born_s = None if not self.seen_s else self.seen_s
        threads, why = attempt(threads_of, self.root, self.pid, known_ids, born_s)
        if threads is None:
            if not self.threads:
                self.no_threads = why
            return 0
        if len(threads) > most:
            self.has_more = True
            if not self.threads:
                self.no_threads = LEFT_OUT
            return 0
        self.threads += threads
        self.no_threads = None
        return len(threads)

    def sample(self, most: int = SAMPLED) -> "list[WatchedThread]":
        """Add the first thread and those that ran most since the last sample; returns them."""
        ran, why = attempt(run_times, self.root, self.pid)
        if not ran:
            self.no_threads = why if not self.threads else self.no_threads
            return []
        known_ids = {thread.tid for thread in self.threads}
        grown = {tid: ran[tid] - self.ran.get(tid, 0) for tid in ran}
        listed = sorted(grown, key=lambda tid: (tid != self.pid, -grown[tid]))[:most]
        self.ran, self.no_threads = ran, None
        task_folder = path_under(self.root, self.node_folder + "task") + "/"
        new = [WatchedThread(task_folder, tid) for tid in listed if tid not in known_ids]
        self.threads += new
        return new

    def sample_s(self) -> float:
        """CPU time that a sample takes."""
        return SAMPLE_S * float(self.last.get("threads") or 0)

    def unwatched_text(self) -> str:
        count = (self.last.get("threads") or 0) - len(self.threads)
        return "{} of its threads were not watched".format(max(1, count))

    def read_pages(self) -> None:
        if self.last.get("resident_pages", 0) * os.sysconf("SC_PAGE_SIZE") >> 10 > SMALL_KB:
            self.pages = (None, "not read of a process of more than 2 GiB: it would hold it up")
        else:
            path = self.node_folder + "numa_maps"
            self.pages = attempt(lambda: numa_pages(read(self.root, path)))

    def to_record(self, looks: int, connections: "Connections | None" = None) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.ProcessActivity."""
        record = Reading(pid=self.pid, gpus=sorted(self.gpus))
        record.update(born_s=self.born_s, seen_s=self.seen_s, ended_s=self.ended_s)
        record["command_before"] = self.name_before
        if self.last:
            record["parent"], record["command"] = self.last["parent"], self.last["name"]
            record["started_s"] = self.last["started"] / float(HZ)
            record["threads_total"] = self.last["threads"]
            record["resident_kb"] = self.last["resident_pages"] * os.sysconf("SC_PAGE_SIZE") >> 10
        else:
            record.fail_all(("parent", "command", "started_s"), self.why.get("user", "it ended"))
        put_counts(record, COUNTS, self.first, self.last)
        record["errors"].update(self.why)
        self.tell_status(record)
        if self.ended_s is not None:
            record.fail("stack", "it ended")
        elif has_run(record):
            record.fail("stack", "it ran")
        else:
            record.take("stack", stack, self.root, self.node_folder)
        if self.no_threads:
            record.fail("threads", self.no_threads)
        else:
            tables = Tables(self.root, self.pid, connections)
            record["threads"] = [self.thread_record(each, looks, tables) for each in self.threads]
            if self.has_more:
                record["errors"]["threads"] = self.unwatched_text()
        record["pages"], why = self.pages
        if why:
            record["errors"]["pages"] = why
        cgroup, why = self.cgroup
        record["cgroup"] = cgroup.name if cgroup else None
        if why:
            record["errors"]["cgroup"] = why
        if self.is_rank:
            self.tell_job(record, cgroup.path if cgroup else "")
        return record

    def tell_job(self, record: "Reading", cgroup: str) -> None:
        variables, why = self.variables
        for field, tell in (("job_id", job_id), ("step", step_id)):
            record[field] = tell(cgroup, variables or {})
        if record["uid"] is not None:
            record.take("login", login_of, self.root, record["uid"], variables or {})
        if (record["job_id"] or "").startswith("pod "):
            record.take("pod", pod_name, self.root, record["job_id"])
        record["partition"] = (variables or {}).get("SLURM_JOB_PARTITION")
        record["master"] = master(variables or {})
        record["rank"], record["ranks"] = rank_of(variables or {})
        if why:
            record.fail_all(("master", "rank"), why)

    def flight(self, dumps: "Dumps", uid: "int | None") -> "Reading":
        """The dump of its flight recorder. Raises OSError, ValueError."""
        uptime = float(line(self.root, "/proc/uptime").split()[0])
        age_s = uptime - self.last["started"] / float(HZ)
        return dumps.read(self.folder, -1 if uid is None else uid, time.time() - age_s)

    def thread_record(self, thread: "WatchedThread", looks: int, tables: "Tables") -> "Reading":
        record, log = thread.record(looks), self.sleeps.get(thread.tid)
        if log is None or self.ended_s is not None:
            return record
        record["sleeps"] = log.records(tables)
        if log.why:
            record.fail("sleeps", log.why)
        return record

    def read_status(self) -> None:
        rows = attempt(lambda: parse_rows(read(self.root, self.node_folder + "status")))
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
            record.take("arguments", arguments, self.root, self.node_folder)
        else:
            record.fail("arguments", "it ended")


def has_run(record: "Reading") -> bool:
    """Whether a process used CPU time; True if unknown."""
    pairs = (record["user"], record["system"])
    return None in pairs or any(first != last for first, last in pairs)


def stack(root: str, place: str) -> "list[str]":
    """The kernel functions in which a process sleeps. Raises OSError if not root."""
    rows = text_lines(read(root, place + "stack"))
    matches = [STACK_ROW.match(row) for row in rows]
    return [match.group(1) for match in matches if match][:STACK]


def arguments(root: str, place: str) -> str:
    data = read_bytes(root, place + "cmdline", 4 * ARGUMENTS)
    return " ".join(data.decode("utf-8", "backslashreplace").split("\0")).strip()[:ARGUMENTS]


class WatchedCgroup(object):
    """A watched cgroup."""

    def __init__(self, cgroup: "Cgroup") -> None:
        self.cgroup = cgroup
        self.first: "dict[str, Any]" = {}
        self.last: "dict[str, Any]" = {}
        self.why: "dict[str, Any]" = {}

    def count(self) -> None:
        counts, why = attempt(self.cgroup.throttling)
        self.last.update(counts or dict.fromkeys(THROTTLING))
        events, error = attempt(self.cgroup.memory_events)
        self.last["memory_events_max"] = events
        self.why.update(dict.fromkeys(THROTTLING, why), memory_events_max=error)
        for field, kind, share in PSI:
            totals, error = attempt(lambda kind=kind: parse_pressure(self.cgroup.pressure(kind)))
            self.last[field] = (totals or {}).get(share)
            self.why[field] = error
        if not self.first:
            self.first = dict(self.last)

    def to_record(self) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.CgroupActivity."""
        record = Reading(path=self.cgroup.name, version=2 if self.cgroup.v2 else 1)
        for field in ("cpu_quota", "cpus", "memory_limit_b", "memory_used_b", "pages_b"):
            record.take(field, getattr(self.cgroup, field))
        put_counts(record, CGROUP_COUNTS, self.first, self.last)
        record["errors"].update({field: why for field, why in self.why.items() if why})
        return record


class Watched(object):
    """All watched processes and cgroups."""

    def __init__(self, root: str, results: "dict[str, Any]", jobs: "Sequence[str]" = ()) -> None:
        """`jobs`: processes of these jobs with a rank are watched even if they use no GPU."""
        self.root = root
        gpus = gpus_of_pids(results)
        self.newest = newest(root)
        rows = stats(root, PIDS)
        self.others = Others(root, rows)
        parent_of = {pid: stat["parent"] for pid, stat in rows.items()}
        self.known_pids = set(parent_of)
        pids = with_descendants(gpus, parent_of)
        self.complete = set(gpus) <= set(pids) and len(pids) <= PROCESSES
        self.processes = [WatchedProcess(root, pid, gpus.get(pid, [])) for pid in pids[:PROCESSES]]
        if jobs:
            self.processes += ranks_without_gpu(root, parent_of.keys() - set(pids), jobs)
        self.groups: "dict[str, WatchedCgroup]" = {}
        self.births = self.deaths = 0
        self.left_out = max(0, len(pids) - PROCESSES)
        self.next_process = self.next_thread = 0  # for the next search
        # pid: (seconds, ticks of the process, of its watched threads)
        self.ticks_by_pid: "dict[int, tuple[float, int, int]]" = {}
        for process in self.processes:
            self.add_group(process)

    def add_group(self, process: "WatchedProcess") -> "WatchedCgroup | None":
        """Watch the cgroup of a process; returns it if it is new."""
        group, _ = process.cgroup
        if group and group.name and group.name not in self.groups and len(self.groups) < PROCESSES:
            self.groups[group.name] = WatchedCgroup(group)
            return self.groups[group.name]
        return None

    def begin(self, watch: "Watch", allowed_s: float) -> None:
        """The first look; watches all threads of a process, those that ran most, or none, as the
        time allows."""
        self.find_births(watch, True)
        for process in self.processes:
            process.count()
            process.read_status()
        for group in self.groups.values():
            group.count()
        end, threads_left = cpu_s() + allowed_s, THREADS
        for process in self.processes:
            always_left = max(0, ALWAYS_WATCHED - (THREADS - threads_left))
            affordable = int((end - cpu_s()) / THREAD_S)
            threads_left -= process.find_threads(
                min(threads_left, max(affordable, always_left)) or -1
            )
            began_s = cpu_s()
            if process.has_more and began_s + process.sample_s() <= end + allowed_s:
                threads_left -= len(process.sample(min(SAMPLED, threads_left)))
                watch.once_s += cpu_s() - began_s
            for thread in process.threads:
                thread.look(True)
        self.read_calls(4 * CALLS)

    def read_calls(self, most: int) -> None:
        for log in sleepers(self.processes, most):
            log.look()

    def look(self, watch: "Watch", is_whole: bool) -> None:
        """Look at active threads; with `is_whole`, at everything."""
        seconds = watch.times[-1]
        if is_whole:
            self.find_births(watch, True)
        for process in self.processes:
            if is_whole and process.born_s != seconds:
                process.count(seconds)
                if process.ended_s is None:
                    self.add_threads(process, seconds)
            for thread in process.threads:
                if thread.last_look_s == seconds:
                    continue
                if process.ended_s is not None:
                    thread.ended_s = process.ended_s if thread.ended_s is None else thread.ended_s
                    thread.skip()
                elif is_whole or thread.tid == process.pid or thread.is_active():
                    thread.look(is_whole, seconds)
                else:
                    thread.skip()
        self.read_calls(4 * CALLS if is_whole else CALLS)
        if is_whole:
            for group in self.groups.values():
                group.count()

    def search(self, watch: "Watch") -> None:
        """Find new processes, and resting threads that became active, as far as the share of CPU
        time allows."""
        seconds = watch.times[-1]
        if watch.spare_s() > 0:
            self.find_births(watch, False)
        turns = [process for process in self.processes if process.ended_s is None]
        for number in range(len(turns)):
            if number % ROUND == 0 and watch.spare_s() <= 0:
                return
            self.next_process = (self.next_process + 1) % len(turns)
            self.look_closer(turns[self.next_process], seconds, watch.spare_s())
        resting = [
            thread
            for p in turns
            for thread in p.threads
            if thread.last_look_s != seconds and thread.ended_s is None
        ]
        for number in range(len(resting)):
            if number % ROUND == 0 and watch.spare_s() <= 0:
                return
            self.next_thread = (self.next_thread + 1) % len(resting)
            resting[self.next_thread].look_again(seconds)

    def look_closer(self, process: "WatchedProcess", seconds: float, spare_s: float) -> None:
        """Look at a process's new threads, and at all if resting ones used CPU time; of too many
        threads, at those that used most."""
        if not process.count(seconds):
            return
        process_ticks = process.last["user"] + process.last["system"]
        thread_ticks = sum(t.last.get("user", 0) + t.last.get("system", 0) for t in process.threads)
        last_count = self.ticks_by_pid.get(process.pid)
        self.ticks_by_pid[process.pid] = (seconds, process_ticks, thread_ticks)
        if process.last["threads"] > sum(t.ended_s is None for t in process.threads):
            self.add_threads(process, seconds)
        if last_count and (process_ticks - last_count[1]) - (
            thread_ticks - last_count[2]
        ) > WOKEN * HZ * (seconds - last_count[0]):
            for thread in process.threads:
                if thread.last_look_s != seconds:
                    thread.look_again(seconds)
            if process.ran and process.sample_s() <= spare_s:
                for thread in process.sample():
                    thread.look(True, seconds)

    def add_threads(self, process: "WatchedProcess", seconds: float) -> None:
        """Add new threads of a process."""
        if process.no_threads is not None and process.born_s is None:
            return  # left out from the beginning
        first_new = len(process.threads)
        process.find_threads(THREADS - sum(len(watched.threads) for watched in self.processes))
        for thread in process.threads[first_new:]:
            thread.look(True, seconds)

    def find_births(self, watch: "Watch", no_limit: bool) -> None:
        """Watch new descendants of watched processes."""
        seconds, last = watch.times[-1], newest(self.root)
        if last is not None and last == self.newest:
            return
        entries, _ = attempt(names, self.root, "/proc", PIDS)
        if entries is None:
            return
        pids = {int(name) for name in entries if name.isdigit()}
        new_pids, self.known_pids, self.newest = sorted(pids - self.known_pids), pids, last
        parent_of = {p.pid: p.last.get("parent", 0) for p in self.processes if p.last}
        for number, pid in enumerate(new_pids):
            if number % ROUND == 0 and not no_limit and watch.spare_s() <= 0:
                self.known_pids -= set(new_pids[number:])  # their turn comes
                self.newest = None
                break
            stat, _ = attempt(stat_of_pid, self.root, pid)
            if stat:
                parent_of[pid] = stat["parent"]
        watched = {process.pid for process in self.processes}
        for pid in with_descendants([p for p in watched if p in parent_of], parent_of):
            if pid not in watched:
                self.add(pid, seconds if len(watch.times) > 1 else None)

    def add(self, pid: int, seconds: "float | None") -> None:
        """Watch a new process; `seconds`: None at the first look."""
        self.drop_brief()
        if len(self.processes) >= PROCESSES:
            self.left_out += 1
            return
        process = WatchedProcess(self.root, pid, [], seconds)
        group = self.add_group(process)
        self.processes.append(process)
        if seconds is None:
            return  # all are looked at now
        self.births += 1
        process.count(seconds)
        process.read_status()
        self.add_threads(process, seconds)
        if group:
            group.count()

    def drop_brief(self) -> None:
        """Drop brief processes; only their number is reported."""
        brief = [process for process in self.processes if process.is_brief()]
        self.deaths += len(brief)
        self.left_out += self.heirs(brief)
        self.processes = [process for process in self.processes if process not in brief]

    def heirs(self, processes: "Iterable[WatchedProcess]") -> int:
        """How many of these pids another, unwatched process of the job got."""
        watched = {process.pid for process in self.processes}
        return sum(process.heir in watched for process in processes)


def ranks_without_gpu(
    root: str, pids: "Iterable[int]", jobs: "Container[str]"
) -> "list[WatchedProcess]":
    """Those of these processes that have a rank in one of the jobs; the newest come last."""
    ranks: "list[WatchedProcess]" = []
    for pid in sorted(pids):
        variables, why = attempt(job_variables, root, "/proc/{}/".format(pid))
        if variables and rank_of(variables)[0] is not None and len(ranks) < PROCESSES:
            process = WatchedProcess(root, pid, [])
            cgroup, _ = process.cgroup
            if job_id(cgroup.path if cgroup else "", variables) in jobs:
                process.variables, process.is_rank = (variables, why), True
                ranks.append(process)
    return ranks


def newest(root: str) -> "int | None":
    """The newest pid of a process or thread, or None."""
    return attempt(lambda: integer(line(root, "/proc/loadavg").split()[4]))[0]


def delays_counted(root: str) -> bool:
    """Whether the kernel counts the delays of tasks that start now; kernels before 5.14 have no
    such file. Raises OSError, ValueError."""
    return flag(line(root, "/proc/sys/kernel/task_delayacct"))


def put_dumps(
    processes: "Iterable[WatchedProcess]", records: "Iterable[Reading]", seconds: float
) -> None:
    """Add the dumps of the flight recorder of ranks. They may be on a file system that hangs."""
    ranks = [pair for pair in zip(processes, records) if pair[1].get("rank") is not None]
    if not ranks:
        return
    dumps = Dumps()
    readers = [lambda p=process, r=record: p.flight(dumps, r["uid"]) for process, record in ranks]
    for (_, record), (flight, why) in zip(ranks, read_apart(readers, seconds)):
        record.put("flight", flight, why)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    watch = Watch("process_activity", root, request, LOOKS_PER_INTERVAL, SHARE)
    watched = Watched(root, request.get("found", {}), watch.options.get("job_ids") or ())
    watch.wait()
    uptime, _ = attempt(lambda: float(line(root, "/proc/uptime").split()[0]))
    last_search = 0.0
    for seconds in watch.looks():
        if len(watch.times) == 1:
            watched.begin(watch, budget_s(SHARE, watch.duration_s) * FIRST)
            continue
        watched.look(watch, watch.is_last)
        if watch.is_last:
            watched.others.finish(watched.processes, seconds)
        if (
            not watch.is_last
            and seconds - last_search > (LOOKS_PER_INTERVAL - 0.5) * watch.interval
        ):
            last_search = seconds
            watched.search(watch)
    watched.drop_brief()
    for process in watched.processes:
        process.read_pages()
    looks = len(watch.times)
    ended = sum(process.ended_s is not None for process in watched.processes)
    section = Reading(look=watch.look(), times_s=watch.times, tick_hz=HZ, uptime_s=uptime)
    section.take("delays_counted", delays_counted, root)
    section["left_out"] = watched.left_out + watched.heirs(watched.processes)
    section["complete"] = (
        watched.complete
        and not section["left_out"]
        and not any(
            process.has_more or (process.no_threads and process.ended_s is None)
            for process in watched.processes
        )
    )
    section["born"], section["ended"] = watched.births, watched.deaths + ended
    connections = Connections(root)
    section["processes"] = [each.to_record(looks, connections) for each in watched.processes]
    seconds_left = request.get("end", time.monotonic() + 2 * DUMPS_S) - time.monotonic()
    put_dumps(watched.processes, section["processes"], min(DUMPS_S, max(0.1, seconds_left / 2)))
    section.put("others", watched.others.records, watched.others.why)
    section["cgroups"] = [watched.groups[name].to_record() for name in sorted(watched.groups)]
    return section
