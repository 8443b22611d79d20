"""Section process_activity: what the processes of the GPUs did while they were watched, with their
threads, their helpers and the limits of their cgroups; read if asked for."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Real, Text, at_most
from nodevet.evidence.activity import Counted, Look, Numbers, Times
from nodevet.evidence.core import Record, SectionRecord

LOOKS_TEXT = at_most(2048)  # a letter for each
THREADS = at_most(8192)  # of one process that are watched
OTHERS = at_most(64)  # processes that use the CPUs for which a job waits; the probe keeps 5
SLEEPS = at_most(64)  # different calls in which one thread slept; the probe keeps 8
STACK = at_most(64)  # functions of the kernel; it tells 64 at most
WATCHED = at_most(1024)  # processes and cgroups of jobs

States = Annotated[str, LOOKS_TEXT]
"""The state at each look, a letter of proc_pid_stat(5) each; `-` where it was not read."""
PagesByNode = Annotated[dict[Text, int], bounds.NUMA_NODES]
"""NUMA node -> pages."""


class TcpConnection(Record, frozen=True, kw_only=True):
    """A connection for which a thread waits, after the last look; counters since it was opened.
    sock_diag(7), tcp_info of linux/tcp.h."""

    receive_queue_b: int | None = None  # received, and not read by the process
    send_queue_b: int | None = None  # sent or to be sent, and not acknowledged
    round_trip_us: int | None = None  # smoothed
    silent_ms: int | None = None  # since the last data came
    resends_now: int | None = None  # in a row, without an answer
    resent: int | None = None  # segments
    sent: int | None = None
    out_of_order: int | None = None  # segments that came so: those before were lost or late
    received: int | None = None


class Sleep(Record, frozen=True, kw_only=True):
    """A system call in which a thread slept, and what for. /proc/<pid>/task/<tid>/syscall, fd,
    fdinfo, mountinfo, net/tcp."""

    call: Text  # its name, else its number; `page fault` outside of one
    looks: int  # at which it was seen there
    path: Text | None = None  # of the file
    positions: tuple[int, int] | None = None  # in the file at the first such look and at the last
    point: Text | None = None  # where its file system is mounted
    filesystem: Text | None = None  # its kind
    disk: Text | None = None  # of the file system, if it has one
    peer: Text | None = None  # address and port of the first open TCP connection
    connections: int | None = None  # open TCP connections among what it sleeps for
    listens: bool | None = None  # for clients: a socket that listens, or a client's connection
    tcp: TcpConnection | None = None  # of the connection that its call names


class ThreadActivity(Record, frozen=True, kw_only=True):
    """/proc/<pid>/task/<tid>/{stat,status,schedstat,wchan}; times in clock ticks."""

    tid: int
    name: Text | None = None  # comm
    born_s: Real | None = None  # seconds after the first look, of one that was not there then
    ended_s: Real | None = None  # when it was gone: what it did since the look before is not known
    states: States | None = None
    user: Counted | None = None  # utime
    system: Counted | None = None  # stime
    ticks: Numbers | None = None  # utime and stime at each look, of a thread that ran
    cpu: int | None = None  # that it ran on last; null if `cpus` are told
    cpus: Numbers | None = None  # the same at each look, of a thread that ran on several
    waited_ns: Counted | None = None  # schedstat: runnable, and no CPU
    switches: Counted | None = None  # of its own will
    preemptions: Counted | None = None  # nonvoluntary
    # delayacct_blkio_ticks of a thread that was seen in D; 0 if the kernel does not count it
    io_delay_ticks: Counted | None = None
    # the function of the kernel that it slept in -> at how many looks; wchan
    waits: Annotated[dict[Text, int], bounds.LOOKS] | None = None
    # of threads of which it matters most, the most frequent first
    sleeps: Annotated[tuple[Sleep, ...], SLEEPS] | None = None


class FlightGroup(Record, frozen=True, kw_only=True):
    """The collectives of one process group, by their sequence numbers. FlightRecorder in PyTorch's
    torch/csrc/distributed/c10d."""

    group: Text
    members: NumberList | None = None  # its ranks
    completed: int | None = None  # the last that completed
    completed_as: Text | None = None  # its name
    scheduled: int | None = None  # the last that was scheduled
    sequence: int | None = None  # the first that is not completed; else the last
    collective: Text | None = None  # its name
    sizes: Text | None = None  # of its inputs
    state: Text | None = None  # scheduled, started, completed
    age_s: Real | None = None  # since it was created, when the dump was read


class FlightDump(Record, frozen=True, kw_only=True):
    """A dump of PyTorch's flight recorder that a rank wrote."""

    version: Text | None = None  # of the format
    path: Text | None = None
    age_s: Real | None = None  # when it was read
    whole: bool | None = None  # it holds every collective since the rank began
    held_s: Real | None = None  # it holds those of the last so many seconds, when it was read
    timed: bool | None = None  # it says when a collective started
    groups: Annotated[tuple[FlightGroup, ...], SLEEPS] | None = None


class ProcessActivity(Record, frozen=True, kw_only=True):
    """A process that has a GPU open, or a descendant of one. /proc/<pid>/{stat,status,io,cgroup,
    numa_maps}."""

    pid: int
    parent: int | None = None
    command: Text | None = None  # comm
    command_before: Text | None = None  # of one that became another program meanwhile
    arguments: Text | None = None  # cmdline; left out of what is redacted
    uid: int | None = None
    gpus: Annotated[tuple[int, ...], bounds.GPUS] = ()  # indices; of a helper: none
    started_s: Real | None = None  # seconds after boot
    born_s: Real | None = None  # seconds after the first look, of one that was not there then
    seen_s: Real | None = None  # when it was looked at last
    ended_s: Real | None = None  # when it was gone: its counters are those of `seen_s`
    cpus_allowed: Text | None = None
    threads_total: int | None = None
    threads: Annotated[tuple[ThreadActivity, ...], THREADS] | None = None
    user: Counted | None = None  # of all its threads, ended ones too
    system: Counted | None = None
    children_user: Counted | None = None  # of children that ended
    children_system: Counted | None = None
    major_faults: Counted | None = None
    read_calls: Counted | None = None  # syscr
    read_b: Counted | None = None  # rchar: asked for by read(2), the page cache included
    storage_read_b: Counted | None = None  # read_bytes: fetched from storage
    storage_written_b: Counted | None = None
    io_delay_ticks: Counted | None = None  # delayacct_blkio_ticks, if the kernel counts it
    resident_kb: int | None = None
    swapped_kb: int | None = None
    pages: PagesByNode | None = None  # numa_maps; of small processes only, it holds up large ones
    cgroup: Text | None = None
    # of a process on a GPU: the job by its cgroup and environ, `Slurm 12` or `pod UID`
    job_id: Text | None = None
    login: Text | None = None  # of the uid: /etc/passwd, else SLURM_JOB_USER
    partition: Text | None = None  # SLURM_JOB_PARTITION
    pod: Text | None = None  # namespace/name: /var/log/pods
    master: Text | None = None  # MASTER_ADDR:MASTER_PORT, where the ranks of a job meet
    step: Text | None = None  # of Slurm: `0`, `batch`
    rank: int | None = None  # RANK, or what another launcher calls it
    ranks: int | None = None  # that the job has: WORLD_SIZE, ...
    flight: FlightDump | None = None  # of a rank that has written one
    # where its first thread sleeps, innermost first; of a process that did not run: stack
    stack: Annotated[tuple[Text, ...], STACK] | None = None


class CgroupActivity(Record, frozen=True, kw_only=True):
    """The cgroup of such processes; limits are the strictest of it and of those above it."""

    path: Text
    version: int | None = None  # 1 or 2
    cpu_quota: Real | None = None  # CPUs: cpu.max, cpu.cfs_quota_us / cpu.cfs_period_us
    cpus: Text | None = None  # cpuset.cpus.effective
    periods: Counted | None = None  # nr_periods
    throttled: Counted | None = None  # nr_throttled
    throttled_us: Counted | None = None
    memory_limit_b: int | None = None  # memory.max, or memory.high if that is lower
    memory_used_b: int | None = None
    memory_events_max: Counted | None = None  # memory.events: max and high, memory.failcnt
    cpu_some_us: Counted | None = None  # cpu.pressure
    io_full_us: Counted | None = None  # io.pressure
    memory_full_us: Counted | None = None  # memory.pressure
    memory_some_us: Counted | None = None
    pages_b: PagesByNode | None = None  # memory.numa_stat: anon and file, bytes


class OtherProcess(Record, frozen=True, kw_only=True):
    """A process of no job on a GPU that used a CPU. /proc/<pid>/{stat,status,cgroup}."""

    pid: int
    command: Text | None = None  # comm
    cpus: Real | None = None  # that it used, as a mean
    uid: int | None = None
    login: Text | None = None  # of the uid: /etc/passwd
    cgroup: Text | None = None


class WatchCost(Record, frozen=True, kw_only=True):
    """CPU time that the visit took on the node, in seconds."""

    probe_s: Real | None = None  # of the probe and all that it started: every section
    login_s: Real | None = None  # of the sshd of this session; none on this machine


class ProcessActivities(SectionRecord, frozen=True, kw_only=True):
    """`complete` is False if a process was left out, or could not be watched."""

    unique = ("processes[].pid", "others[].pid", "cgroups[].path", "processes[].threads[].tid")
    plural = "processes"
    volatile = (
        *("look", "times_s", "uptime_s", "complete", "processes", "others", "cgroups"),
        "cost",
    )

    look: Look | None = None
    times_s: Times | None = None
    tick_hz: int | None = None
    uptime_s: Real | None = None  # at the first look
    complete: bool | None = None
    delays_counted: bool | None = None  # kernel.task_delayacct: of tasks that start now
    # processes of the jobs that were not watched: beyond 512, or with the number of one that ended
    left_out: int | None = None
    born: int | None = None  # processes that were found meanwhile
    ended: int | None = None  # those that ended; what used less than 0.1 s is in no list
    processes: Annotated[tuple[ProcessActivity, ...], WATCHED] | None = None
    others: Annotated[tuple[OtherProcess, ...], OTHERS] | None = None  # only if the job waited
    cgroups: Annotated[tuple[CgroupActivity, ...], WATCHED] | None = None
    cost: WatchCost | None = None
