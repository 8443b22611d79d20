"""The figures of the job on a GPU: the processes that NVML names on it, and their descendants."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.diagnose import connections, delays, hot, places, waiting
from nodevet.diagnose.cpu_time import cpu_ticks, io_count
from nodevet.diagnose.hot import ticks_used
from nodevet.diagnose.model import Figure, Job
from nodevet.diagnose.owners import is_contained, owner_of, who_text
from nodevet.diagnose.series import counter_growth, known_values, percent, rate, total
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.lists import numbers
from nodevet.evidence.process_activity import (
    CgroupActivity,
    OtherProcess,
    ProcessActivities,
    ProcessActivity,
    ThreadActivity,
)

HOT = 50.0  # percent of a core: a thread that could be what others wait for
ACTIVE = 10.0  # percent of a core: a thread that works
LEAST_RAN = 0.1  # percent of a core: what a thread that never ran is taken to have run
LEAST = 3  # looks at a thread below which its states say nothing
STORAGE_WAITS = (  # how the kernel's functions are called in which a thread waits for storage
    # pages and buffers: sleep_on_* up to 3.15, wait_on_page* up to 5.15, folio_* since
    *("sleep_on_page", "sleep_on_buffer", "wait_on_page", "__wait_on_page", "lock_page"),
    *("__lock_page", "folio_wait", "__folio_lock", "put_and_wait_on_page", "wait_on_buffer"),
    *("__wait_on_buffer", "bit_wait_io", "filemap_", "__filemap", "io_schedule"),
    # requests, direct I/O, and a disk that cannot take more of what is written
    *("blk_", "blkdev_", "__blkdev", "get_request", "rq_qos_wait", "wbt_wait", "submit_bio"),
    *("bio_", "dio_", "do_blockdev_direct_IO", "__blockdev_direct_IO", "iomap_", "read_events"),
    *("balance_dirty_pages", "wb_wait_for_completion", "dm_", "md_", "raid5_", "bch_"),
    # file systems on disks, and their journals
    *("xfs_", "_xfs_", "xlog_", "ext4_", "jbd2", "do_get_write_access", "start_this_handle"),
    *("wait_transaction_locked", "add_transaction_credits", "btrfs_", "wait_current_trans"),
    *("zfs_", "zio_", "zil_", "dbuf_", "dmu_", "cv_wait_io", "__cv_wait_io", "squashfs_"),
    # file systems of the network
    *("nfs", "__nfs", "_nfs", "rpc_", "__rpc", "fuse_", "__fuse_", "request_wait_answer"),
    *("cifs", "smb", "compound_send_recv", "wait_for_response", "ceph", "netfs", "afs_"),
    *("p9_client_rpc", "v9fs_", "gfs2_", "ocfs2_", "gpfs", "cxiWaitEventWait", "kxcopen"),
    *("cl_", "ll_", "lov_", "mdc_", "osc_", "vvp_", "ptlrpc", "ldlm_", "obd_", "nvfs_"),
)


class WatchedJob(NamedTuple):
    """The processes of one GPU in the evidence."""

    processes: tuple[ProcessActivity, ...]
    on_gpu: frozenset[int]  # pids; the others are helpers: loaders, decoders, compilers
    cgroups: tuple[CgroupActivity, ...]
    seconds: float
    hz: int
    unseen: str = ""  # why what it did is known in part only


def watched_job(evidence: Evidence, gpu: GpuActivity) -> WatchedJob | str:
    """The job on a GPU, or why it is not known."""
    section = evidence[ProcessActivities]
    data = section.data
    if data is None:
        return section.why
    if data.processes is None or data.look is None or not data.look.seconds or not data.tick_hz:
        return data.why("processes")
    own = _gpu_family(data.processes, gpu)
    if own is None:
        return gpu.why("processes")
    paths = {process.cgroup for process in own}
    groups = tuple(group for group in data.cgroups or () if group.path in paths)
    named = _named_pids(data.processes, gpu)
    on_gpu = named | {process.pid for process in own if gpu.index in process.gpus}
    unseen = _unseen_text(named - {process.pid for process in own}, data.left_out or 0)
    unseen = unseen or _orphans(data.processes)
    return WatchedJob(own, on_gpu, groups, data.look.seconds, data.tick_hz, unseen)


def _unseen_text(missing: frozenset[int], left_out: int) -> str:
    if missing:
        return (
            f"nodevet did not watch process {min(missing)}: it started meanwhile, or /proc hides "
            f"it here (hidepid, a container); run nodevet as root on the host to see it"
        )
    return (
        "nodevet did not watch some of its processes: they were too many, or too brief"
        if left_out
        else ""
    )


def _orphans(processes: Iterable[ProcessActivity]) -> str:
    """A process that may belong to the job, because its parent is not known."""
    pid = next(
        (process.pid for process in processes if process.parent is None and not process.gpus), None
    )
    return "" if pid is None else f"nodevet could not read whose child process {pid} is"


def _named_pids(processes: Iterable[ProcessActivity], gpu: GpuActivity) -> frozenset[int]:
    """The processes on a GPU, as NVML names them. MPS's server only passes on its clients' work."""
    servers = {process.pid for process in processes if is_mps(process)}
    return frozenset(process.pid for process in gpu.processes or ()) - servers


def is_mps(process: ProcessActivity) -> bool:
    """Whether it is nvidia-cuda-mps-server: Linux keeps 15 characters of a name."""
    return process.command == "nvidia-cuda-mps"


def users(evidence: Evidence, gpu: GpuActivity) -> tuple[int, ...]:
    """The processes on a GPU: those that NVML names, and those that hold its device open, as NVML
    names none in a container."""
    data = evidence[ProcessActivities].data
    processes = (data.processes if data else None) or ()
    holding = {
        each.pid
        for each in processes
        if gpu.index in each.gpus and each.ended_s is None and not is_mps(each)
    }
    return tuple(sorted(_named_pids(processes, gpu) | holding))


def _gpu_family(
    processes: Sequence[ProcessActivity], gpu: GpuActivity
) -> tuple[ProcessActivity, ...] | None:
    """The processes on a GPU and all that descend from them."""
    if gpu.processes is None and not any(gpu.index in process.gpus for process in processes):
        return None
    listed = [each for each in processes if not is_mps(each)]
    named = _named_pids(processes, gpu)
    family: dict[int, ProcessActivity] = {}
    for process in listed:  # parents come before their children
        if process.pid in named or gpu.index in process.gpus or process.parent in family:
            family[process.pid] = process
    # what a helper did that ended is counted with its parent's, see proc_pid_stat(5) and wait(2)
    return tuple(
        process
        for process in family.values()
        if process.pid in named or gpu.index in process.gpus or not has_ended(process)
    )


def has_ended(process: ProcessActivity) -> bool:
    """Whether it ended while it was watched."""
    return process.user is None and process.errors.get("user", "").startswith("it ended")


def jobs(evidence: Evidence, gpu: GpuActivity) -> tuple[Job, ...]:
    """The processes on a GPU as people name them."""
    job = watched_job(evidence, gpu)
    own = {} if isinstance(job, str) else {process.pid: process for process in job.processes}
    used = {process.pid: process.memory_used_b for process in gpu.processes or ()}
    return tuple(
        Job(
            pid=pid,
            command=(own[pid].command or "") if pid in own else "",
            memory_b=used.get(pid),
            helpers=_helpers(pid, own),
            owner=owner_of(evidence, pid),
        )
        for pid in users(evidence, gpu)
    )


def _helpers(pid: int, own: Mapping[int, ProcessActivity]) -> int:
    family = {pid}
    for process in own.values():
        if process.parent in family:
            family.add(process.pid)
    return len(family) - 1


def job_figures(evidence: Evidence, gpu: GpuActivity) -> Iterator[Figure]:
    job = watched_job(evidence, gpu)
    if isinstance(job, str):
        yield from (Figure(name, None, unit, what, job) for name, unit, what in NAMES)
        return
    for figure in _of_job(job, evidence, gpu):
        is_known = not job.unseen or (figure.name in OF_CGROUP and figure.value)
        yield figure if is_known else _figure(figure.name, None, job.unseen)


def _of_job(job: WatchedJob, evidence: Evidence, gpu: GpuActivity) -> Iterator[Figure]:
    yield _figure("born", float(sum(process.born_s is not None for process in job.processes)))
    yield _figure("ended", float(sum(process.ended_s is not None for process in job.processes)))
    yield from _cpu(job, evidence)
    blocked = list(_waits(job))
    yield from (*blocked, *_of_waits(job))
    counted = delays.io_delayed(job.processes, evidence) if blocked[0].value else (0.0, "")
    yield _figure("io_delayed", *counted)
    yield from _reads(job)
    yield from _limits(job)
    yield from places.place_figures(job.processes, job.cgroups, evidence, gpu, _unread(job))


OF_CGROUP = ("quota_throttled", "job_io_stalled", "job_memory_stalled", "limit_hits")
NAMES = (
    ("born", "", "processes of the job that started while it was watched"),
    ("ended", "", "processes of the job that ended while it was watched"),
    ("job_cpus", "", "CPUs that the job uses"),
    ("job_user", "%", "user time (of the job's CPU time)"),
    ("job_system", "%", "system time (of the job's CPU time)"),
    ("cpus_allowed", "", "CPUs that the job may use"),
    ("saturation", "%", "CPUs that it uses or waits for (of its allowed CPUs)"),
    ("own_share", "%", "CPUs that it uses (of its allowed CPUs)"),
    ("others_cpus", "", "CPUs that the busiest processes of others use"),
    ("hottest_thread", "%", "hottest thread of the GPU's processes, of one core"),
    ("hottest_helper", "%", "hottest thread of the job's helpers, of one core"),
    (
        "thread_wants",
        "%",
        "hottest thread of the GPU's processes with its waits for a CPU, of one core",
    ),
    ("helper_wants", "%", "hottest helper with its waits for a CPU, of one core"),
    ("helpers_want", "%", "all helpers with their waits for a CPU, of one core"),
    ("ended_helpers", "%", "helpers that ended, of one core"),
    *((hot_name, unit, what) for hot_name, (unit, what) in hot.NAMES.items()),
    ("hot_threads", "", f"threads above {HOT:g} % of a core"),
    ("active_threads", "", f"threads above {ACTIVE:g} % of a core"),
    ("switches", "/s", "context switches of the job"),
    ("cpu_starved", "%", "time in which its hottest thread waited for a CPU that others used"),
    ("starved_ratio", "x", "that wait, relative to the time for which this thread ran"),
    ("starved_of_waits", "x", "that wait, relative to this thread's wait for storage or a peer"),
    ("blocked", "%", "time in which the job's busiest waiter waited for storage"),
    *((wait_name, "%", what) for wait_name, what in waiting.NAMES.items()),
    ("lost_segments", "%", connections.WHAT),
    ("io_delayed", "%", delays.WHAT),
    ("read_rate", "MB/s", "read by the job"),
    ("write_rate", "MB/s", "written by the job"),
    ("read_size", "kB", "bytes of one read"),
    ("quota_throttled", "%", "periods in which its cgroup used up its CPU quota"),
    ("job_io_stalled", "%", "time in which all of the cgroup waited for I/O (PSI)"),
    ("job_memory_stalled", "%", "time in which all of the cgroup waited for memory (PSI)"),
    ("limit_hits", "/s", "times its cgroup reached its memory limit"),
    ("job_major_faults", "/s", "pages that the job's faults read in"),
    ("fault_time", "us", "system time of the job for each page that its faults read in"),
    *((place_name, "%", what) for place_name, what in places.NAMES.items()),
)


def _unread(job: WatchedJob) -> str:
    """Why the threads of one of its processes are not known; empty if all are."""
    missing = [
        process for process in job.processes if process.threads is None and process.ended_s is None
    ]
    return missing[0].why("threads") or "the threads of a process were not read" if missing else ""


def _figure(name: str, value: float | None, why: str = "", note: str = "") -> Figure:
    unit, what = next((unit, what) for known_name, unit, what in NAMES if known_name == name)
    return Figure(name, value, unit, what, why if value is None else "", note)


def _cpu(job: WatchedJob, evidence: Evidence) -> Iterator[Figure]:
    why = "the CPU time of a process is not known"
    user = cpu_ticks(job.processes, "user", job.seconds)
    system = cpu_ticks(job.processes, "system", job.seconds)
    ticks = None if user is None or system is None else user + system
    cpus = None if ticks is None else ticks / job.hz / job.seconds
    if not job.processes:
        user = system = ticks = cpus = 0.0
    yield _figure("job_cpus", cpus, why)
    yield _figure(
        "job_user", percent(user, ticks) if ticks else (None if cpus is None else 0.0), why
    )
    yield _figure(
        "job_system", percent(system, ticks) if ticks else (None if cpus is None else 0.0), why
    )
    allowed, note = cpus_allowed(job, evidence)
    yield _figure("cpus_allowed", allowed, "which CPUs it may use is not known", note)
    yield _figure("own_share", percent(cpus, allowed), why, note)
    yield _other_cpus(job, evidence)
    waited = [
        rate(thread.waited_ns, job.seconds)
        for process in job.processes
        for thread in process.threads or ()
    ]
    unread = _unread(job)
    needed = (
        None if cpus is None or unread else cpus + sum(wait / 1e9 for wait in known_values(waited))
    )
    yield _figure("saturation", percent(needed, allowed), unread or why, note)
    yield from _threads(job)


def needed_percent(thread: ThreadActivity, job: WatchedJob) -> float | None:
    """Percent of a core that a thread used or waited for: a thread that competes for its CPU is
    just as hot.
    """
    ticks = ticks_used(thread)
    if ticks is None:
        return None
    ran = 100.0 * ticks / job.hz / job.seconds
    return ran + (rate(thread.waited_ns, job.seconds) or 0.0) / 1e7


def _threads(job: WatchedJob) -> Iterator[Figure]:
    shares: hot.Shares = []
    if why := _unread(job):
        for name in (*OF_THREADS, *hot.NAMES):
            yield _figure(name, None, why)
        return
    for process in job.processes:
        for thread in process.threads or ():
            share = needed_percent(thread, job)
            if share is not None:
                shares.append((share, process, thread))
    ran = [(_percent(ticks_used(thread), job), process, thread) for _, process, thread in shares]
    yield from _hottest(job, shares, ran)
    yield from hot.hot_figures(of_kind(ran, job, is_helper=False), job.seconds)
    yield _figure("hot_threads", _at_once(shares, HOT, job))
    yield _figure("active_threads", _at_once(shares, ACTIVE, job))
    switches = [
        total((counter_growth(thread.switches), counter_growth(thread.preemptions)))
        for _, _, thread in shares
    ]
    counts = known_values(switches)
    yield _figure(
        "switches",
        sum(counts) / job.seconds if counts or not shares else None,
        "status was not read",
    )
    top = hot.hottest(shares)
    starved = _starved_percent(job, top[1], top[2]) if top else 0.0
    why = "the kernel does not count it"
    yield _figure("cpu_starved", starved, why)
    ran_percent = _percent(ticks_used(top[2]), job) if top else 0.0
    ratio = None if starved is None else starved / max(ran_percent, LEAST_RAN)
    yield _figure("starved_ratio", ratio, why)
    own = _own_wait(top[1], top[2], job) if top else 0.0
    of_waits = None if starved is None or own is None else starved / max(own, LEAST_RAN)
    yield _figure(
        "starved_of_waits", of_waits, why if starved is None else "its waits were not read"
    )


def _own_wait(process: ProcessActivity, thread: ThreadActivity, job: WatchedJob) -> float | None:
    """Percent of the time for which a thread waited for storage or a peer; None if not read."""
    blocked, _ = _storage_wait(thread, job)
    wait = waiting.waiting(process, thread, job.seconds)
    at_peer = wait.share if wait and wait.kind is waiting.SleepKind.NETWORK else 0.0
    return None if blocked is None else max(blocked, at_peer)


def _starved_percent(
    job: WatchedJob, process: ProcessActivity, thread: ThreadActivity
) -> float | None:
    """Percent of the time for which a thread waited for a CPU, less the time for which its cgroup's
    quota held it: schedstat counts both. None if the kernel does not count it."""
    waited = rate(thread.waited_ns, job.seconds)
    held = quota_held_percent(job, process)
    if waited is None or held is None:
        return None
    return max(0.0, min(100.0, waited / 1e7) - held)


def quota_held_percent(job: WatchedJob, process: ProcessActivity) -> float | None:
    """Percent of the time for which the quota of a process's cgroup held it; None if not known."""
    group = next((group for group in job.cgroups if group.path == process.cgroup), None)
    if group is None:
        return None
    if counter_growth(group.throttled) == 0 or has_no_quota(group):
        return 0.0
    held = rate(group.throttled_us, job.seconds)
    return None if held is None else held / 1e4


def has_no_quota(group: CgroupActivity) -> bool:
    """Whether nodevet read that a cgroup has no CPU quota."""
    return bool(group.version) and group.cpu_quota is None and "cpu_quota" not in group.errors


def _other_cpus(job: WatchedJob, evidence: Evidence) -> Figure:
    """The CPUs that other processes use, and which processes these are."""
    data = evidence[ProcessActivities].data
    if data is None or data.others is None:
        return _figure("others_cpus", None, data.why("others") if data else "")
    users = set(filter(None, map(_user, job.processes)))
    note = "; ".join(other_text(other, users) for other in data.others[:OTHERS])
    return _figure("others_cpus", sum(known_values(other.cpus for other in data.others)), note=note)


OTHERS = 2  # other processes that a sentence names


JOBS_USER = " (the job's user)"


def _user(process: ProcessActivity | OtherProcess) -> str:
    """The uid, else the name, of its user; empty if not known."""
    return str(process.uid) if process.uid is not None else process.login or ""


def other_text(other: OtherProcess, users: Container[str] = ()) -> str:
    """`stress 4711 of alice (uid 1000) in backup.service`. `users`: those of the job."""
    login = "" if is_contained(other.cgroup or "") else other.login or ""
    who = who_text(other.uid, login)
    unit = (other.cgroup or "").rstrip("/").rpartition("/")[2]
    place = f" in {unit}" if unit else ""
    whose = f" of {who}" if who else ""
    own = JOBS_USER * (_user(other) in users)
    return f"{other.command or '?'} {other.pid}{whose}{place}{own}"


def _at_once(shares: hot.Shares, least: float, job: WatchedJob) -> float:
    """How many threads took so much of a core at the same time; a thread that started or ended
    meanwhile counts for its share of the time.
    """
    lives = [(share, life_share(process, thread, job)) for share, process, thread in shares]
    return round(sum(life for share, life in lives if life and share / life >= least), 1)


def life_share(process: ProcessActivity, thread: ThreadActivity, job: WatchedJob) -> float:
    """The share of the time in which a thread existed."""
    born = max(thread.born_s or 0.0, process.born_s or 0.0)
    ends = [end for end in (thread.ended_s, process.ended_s) if end is not None]
    return max(0.0, min(1.0, (min([job.seconds, *ends]) - born) / job.seconds))


OF_THREADS = (
    *("hot_threads", "active_threads", "switches"),
    *("cpu_starved", "starved_ratio", "starved_of_waits"),
    *("hottest_thread", "thread_wants", "hottest_helper", "helper_wants"),
    *("helpers_want", "ended_helpers"),
)
MORE = "threads that were not watched, or ended, did more"


def of_kind(shares: hot.Shares, job: WatchedJob, *, is_helper: bool) -> hot.Shares:
    """The shares of helpers, or of the processes on the GPU."""
    return [share for share in shares if (share[1].pid not in job.on_gpu) is is_helper]


def _hottest(job: WatchedJob, shares: hot.Shares, ran: hot.Shares) -> Iterator[Figure]:
    """For the processes on the GPU, whose threads submit its work, and for their helpers: the share
    of a core that one thread had, and the share that it would have had with its own core. For
    helpers that ended, one after the other, only the CPU time is known."""
    for has, wants, is_helper in (
        ("hottest_thread", "thread_wants", False),
        ("hottest_helper", "helper_wants", True),
    ):
        wanted = of_kind(shares, job, is_helper=is_helper)
        yield _top(has, of_kind(ran, job, is_helper=is_helper), job, is_helper)
        yield _top(wants, wanted, job, is_helper)
        if is_helper:
            ended_ticks = _of_ended(job)
            ended_share = None if ended_ticks is None else _percent(ended_ticks, job)
            # of a helper that ended it is not known how long it waited for a CPU
            present_share = sum(share for share, process, _ in wanted if process.ended_s is None)
            both = total((ended_share, present_share))
            unsure = both is not None and both < HOT and _is_more(HOT, job, is_helper)
            yield _figure("helpers_want", None if unsure else both, MORE)
            yield _figure("ended_helpers", ended_share, MORE)


def _percent(ticks: float | None, job: WatchedJob) -> float:
    return 100.0 * (ticks or 0) / job.hz / job.seconds


def _top(name: str, shares: hot.Shares, job: WatchedJob, is_helper: bool) -> Figure:
    """The largest share with its thread; None if something that was not watched may have had a
    larger one.
    """
    top = hot.hottest(shares)
    share = top[0] if top else 0.0
    if share < HOT and _is_more(HOT - share, job, is_helper):
        return _figure(name, None, MORE)
    note = f"{top[1].command or '?'} {top[1].pid}, thread {top[2].tid}" if top else ""
    return _figure(name, min(100.0, share), note=note)


def _is_more(least: float, job: WatchedJob, is_helper: bool) -> bool:
    """Whether threads that were not watched took so many percent of a core, or may have."""
    return any(
        (process.pid not in job.on_gpu) is is_helper and unwatched_percent(process, job) >= least
        for process in job.processes
    )


def _of_ended(job: WatchedJob) -> float | None:
    """Ticks of helpers that ended: they are in no count of those that are there."""
    if not job.processes:
        return 0.0
    all_ticks = total(cpu_ticks(job.processes, field, job.seconds) for field in ("user", "system"))
    present = [ticks_used(process) or 0 for process in job.processes if process.ended_s is None]
    lost = [
        ticks_used(process) or 0
        for process in job.processes
        if process.ended_s is not None and process.pid in job.on_gpu
    ]
    return None if all_ticks is None else max(0.0, all_ticks - sum(present) - sum(lost))


def unwatched_percent(process: ProcessActivity, job: WatchedJob) -> float:
    """Percent of a core that the process used outside its watched threads; the maximum if its
    counters are not known.
    """
    all_ticks = ticks_used(process)
    if all_ticks is None:
        return 0.0 if process.threads and None not in map(ticks_used, process.threads) else 100.0
    watched = sum(ticks_used(thread) or 0 for thread in process.threads or ())
    return max(0.0, 100.0 * (all_ticks - watched) / job.hz / job.seconds)


def cpus_allowed(job: WatchedJob, evidence: Evidence) -> tuple[float | None, str]:
    """(how many CPUs the job may use at the same time, what limits it)."""
    limits: list[tuple[float, str]] = []
    data = evidence[Cpu].data
    online = numbers(data.online) if data is not None else None
    if online:
        limits.append((float(len(online)), ""))
    alive = [process for process in job.processes if process.ended_s is None]
    allowed = [numbers(process.cpus_allowed) for process in alive]
    if None in allowed or any("cpu_quota" in group.errors for group in job.cgroups):
        return None, ""
    if allowed:
        union = frozenset[int]().union(*(entry for entry in allowed if entry is not None))
        limits.append((float(len(union)), "affinity" if online else ""))  # a limit, if not all
    quotas = [group.cpu_quota for group in job.cgroups]
    if quotas and all(quota is not None for quota in quotas):
        limits.append((sum(quota for quota in quotas if quota), "cgroup CPU quota"))
    return min(limits, default=(None, ""), key=lambda entry: entry[0])


def _waits(job: WatchedJob) -> Iterator[Figure]:
    """The thread that waited for storage at most looks; the rest of a job waits for it."""
    worst, note, looked = 0.0, "", False
    hidden = waiting.unwatched_why(job.processes)
    for process in job.processes:
        for thread in process.threads or ():
            if "waits" in thread.errors and process.ended_s is None:
                hidden = hidden or thread.why("waits")
            share, place = _storage_wait(thread, job)
            if share is None:
                continue
            looked = True
            unsure = unexplained_percent(process, thread, job.seconds)
            if unsure >= waiting.SOME:
                hidden = hidden or f"{process.command or '?'} {process.pid} {UNEXPLAINED}"
            if share > worst:
                worst = share
                note = f"{process.command or '?'} {process.pid}" + (f" in {place}" if place else "")
    unseen = not looked or not all(p.threads or p.ended_s is not None for p in job.processes)
    unread = _unread(job)
    if unread or (job.processes and unseen) or (hidden and worst < HOT):
        why = unread or hidden or "nodevet could read neither the states nor wchan of the threads"
        yield _figure("blocked", None, why)
    else:
        yield _figure("blocked", worst, note=note)


def _storage_wait(thread: ThreadActivity, job: WatchedJob) -> tuple[float | None, str]:
    """As blocked_percent, but at most the time for which it neither ran nor waited for a CPU, as
    the kernel counts it: then it was asleep."""
    share, place = blocked_percent(thread)
    most = max(0.0, 100.0 - (needed_percent(thread, job) or 0.0))
    return None if share is None else min(share, most), place


UNEXPLAINED = "sleeps uninterruptibly (D), and nothing shows what for"


def _of_waits(job: WatchedJob) -> Iterator[Figure]:
    if why := _unread(job):
        yield from (_figure(name, None, why) for name in (*waiting.NAMES, "lost_segments"))
        return
    yield from waiting.wait_figures(job.processes, job.on_gpu, job.seconds)


def blocked_percent(thread: ThreadActivity) -> tuple[float | None, str]:
    """(percent of the looks at which a thread waited for storage, in which function). Looks leave
    out a thread that rested, had not started, or had ended. The state D alone is not storage.
    """
    states = thread.states or ""
    if len(states) < LEAST or ("waits" in thread.errors and "D" not in states):
        return None, ""
    waits = storage_waits(thread)
    number = sum(waits.values())
    if is_at_file(thread):
        number = max(number, states.count("D"))
    place = max(waits, key=lambda name: waits[name]) if waits else ""
    return min(100.0, 100.0 * number / len(states)), place


def storage_waits(thread: ThreadActivity) -> dict[str, int]:
    return {
        name: number
        for name, number in (thread.waits or {}).items()
        if name.startswith(STORAGE_WAITS)
    }


FILE_CALLS = (
    *("read", "pread64", "readv", "preadv", "write", "pwrite64", "writev", "pwritev", "fsync"),
    *("fdatasync", "openat", "newfstatat", "getdents64", "close", "io_getevents"),
)
"""Calls in which a thread in D waits for a file system."""


def is_at_file(thread: ThreadActivity) -> bool:
    """Whether a thread slept mostly in a call of a file system."""
    sleep = (thread.sleeps or (None,))[0]
    if sleep is None or sleep.call not in FILE_CALLS:
        return False
    return sleep.connections is None and not (sleep.path or "").startswith("/dev/nvidia")


def unexplained_percent(process: ProcessActivity, thread: ThreadActivity, seconds: float) -> float:
    """Percent of the looks at which it was in D, and neither storage, the driver nor a child that
    starts explains it."""
    states = thread.states or ""
    found = waiting.waiting(process, thread, seconds)
    known = (waiting.SleepKind.DRIVER, waiting.SleepKind.SPAWN, waiting.SleepKind.HELD)
    if is_at_file(thread) or (found is not None and found.kind in known):
        return 0.0
    number = states.count("D") - sum(storage_waits(thread).values())
    return 100.0 * max(0, number) / max(1, len(states))


def _reads(job: WatchedJob) -> Iterator[Figure]:
    read_b = io_count(job.processes, "read_b", job.seconds)
    why = "/proc/<pid>/io was not read"
    yield _figure("read_rate", None if read_b is None else read_b / job.seconds / 1e6, why)
    written_b = io_count(job.processes, "storage_written_b", job.seconds)
    rate_mb = None if written_b is None else written_b / job.seconds / 1e6
    yield _figure("write_rate", rate_mb, why)
    if any(reads_pipe(process) for process in job.processes):
        yield _figure("read_size", None, "it reads pipes or sockets, which Linux counts as well")
        return
    calls = io_count(job.processes, "read_calls", job.seconds)
    size = read_b / calls / 1e3 if read_b is not None and calls else None
    yield _figure("read_size", size, why if calls is None else "it read nothing")


def reads_pipe(process: ProcessActivity) -> bool:
    """Whether nodevet saw a thread of the process read a pipe or socket."""
    return any(
        sleep.call in ("read", "readv") and not sleep.path
        for thread in process.threads or ()
        for sleep in thread.sleeps or ()
    )


def _throttled_percent(group: CgroupActivity) -> float | None:
    """Percent of the periods in which a cgroup used up its quota; None if not known."""
    if counter_growth(group.periods) == 0:
        return 0.0
    share = percent(counter_growth(group.throttled), counter_growth(group.periods))
    return 0.0 if share is None and has_no_quota(group) else share


def _limits(job: WatchedJob) -> Iterator[Figure]:
    throttled = [_throttled_percent(group) for group in job.cgroups]
    worst = None if None in throttled else max(known_values(throttled), default=None)
    if not job.processes:
        worst = 0.0
    yield _figure("quota_throttled", worst, "cpu.stat of the cgroup was not read")
    for name, field in (
        ("job_io_stalled", "io_full_us"),
        ("job_memory_stalled", "memory_full_us"),
    ):
        stalls = known_values(rate(getattr(group, field), job.seconds) for group in job.cgroups)
        why = job.cgroups[0].why(field) if job.cgroups else "its cgroup was not read"
        yield _figure(name, max(stalls, default=0.0) / 1e4 if stalls else None, why)
    hits = [_limit_hits(group, job.seconds) for group in job.cgroups]
    most = None if None in hits else max(known_values(hits), default=None)
    yield _figure("limit_hits", 0.0 if not job.processes else most, "memory.events was not read")
    faults = total(counter_growth(process.major_faults) for process in job.processes)
    value = None if faults is None else faults / job.seconds
    yield _figure("job_major_faults", 0.0 if not job.processes else value, "stat was not read")
    system = cpu_ticks(job.processes, "system", job.seconds)
    each_us = 1e6 * system / job.hz / faults if system is not None and faults else None
    yield _figure("fault_time", each_us, "stat was not read" if faults is None else "it read none")


def _limit_hits(group: CgroupActivity, seconds: float) -> float | None:
    """How often a second a cgroup reached its memory limit; None if not known."""
    hits = rate(group.memory_events_max, seconds)
    has_no_limit = group.memory_limit_b is None and "memory_limit_b" not in group.errors
    return 0.0 if hits is None and has_no_limit else hits
