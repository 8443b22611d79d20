"""Every threshold of a diagnosis, and where it comes from. Nothing else decides a cause.

A rule holds if all its conditions do. Several rules may lead to one cause.
"""

from msgspec import Struct

from nodevet.diagnose.model import Cause

NVML_BUSY = (
    "nvmlUtilization_t: the share of time in which a kernel ran, however much of the GPU it used"
)
ONE_HOT = "mpstat: one hot core with system time is the thread that launches"
WRITES = "write(2), fsync(2): the kernel copies what a checkpoint writes, in that thread's time"
SHORT = (
    "nvmlDeviceGetSamples: a thread that launches too slowly leaves gaps of less than a "
    "millisecond, and no sample of 1/6 s without work"
)
MAIN_HOT = "pidstat -t: a thread that launches spends time in the driver's ioctl and in waits"
GIL = "CPython: one thread of a process runs Python at a time, and gives the lock up every 5 ms"
PAGEABLE = "cudaMemcpy of pageable memory: a thread copies it to a pinned buffer, 3 to 12 GB/s"
MANY_HOT = "mpstat: many cores hot in user time are the transforms"
ONE_HELPER = "top -H: a loader at 100 % while the process on the GPU sleeps means too few loaders"
STARVED = "schedstat: the time in which a thread was ready to run and had no CPU"
PAGING = "vmstat: tens of us of system time for each page read back is the cost of the faults"
ROUND_TRIPS = "pidstat -w: 10 us of CPU a switch, so 10000/s take a tenth of a core by themselves"
IOSTAT = "iostat and ps: threads in D, or asleep in a file system, wait for storage"
LIMIT = "Documentation/admin-guide/cgroup-v2.rst: memory.events max, memory.failcnt of version 1"
LINK = (
    "PCIe base specification: 128b/130b encoding and packet headers leave about 85 % of the "
    "line rate"
)
TURNS = "nvmlDeviceGetSamples beside nvmlDeviceGetPcieThroughput: bytes that move in the gaps alone"
REASONS = "nvmlDeviceGetCurrentClocksEventReasons, NVML_FI_DEV_CLOCKS_EVENT_REASON_*"
FULL = "nvmlDeviceGetMaxClockInfo: a busy GPU runs near its maximum clock unless something slows it"
UNOWNED = "nvidia-smi: memory without a process is that of another PID namespace, or never freed"
SLEEPER = (
    "ps: a process that sleeps and holds GPU memory waits at a barrier, for a lock, or for "
    "a dead loader"
)
CALL = "proc_pid_syscall(5), tcp(7): the call in which a thread sleeps, and its connection"
UNMOVED = "proc_pid_status(5): a thread that never woke has as many context switches as before"
SPINNING = "sched(7): a thread that polls is always ready to run, and gives up no CPU by itself"
CFS = "Documentation/scheduler/sched-bwc.rst: nr_throttled of nr_periods"
REMOTE = "numastat and lstopo: another socket's memory has more latency and less bandwidth"
SWAPPING = "vmstat: swap-in while a job runs means that its working set does not fit"

BUSY = 85.0  # percent: from here on a GPU does not wait
SET_LOW = 60.0  # percent of the maximum: below every clock that a board is sold to run at
SET_LOW_WHILE_BUSY = 75.0  # percent of the maximum: NVML cannot read a locked clock
HELD_LOW = 80.0  # percent of the maximum: a setting that holds the clock below costs a fifth
LITTLE = 5.0  # percent of a GPU's memory: a CUDA context with its libraries takes 0.3 to 1 GB
FEW_TICKS = 0.1  # CPUs: a job that uses less waits for something else than its CPUs
QUIET = 1.0  # percent: below, it does nothing
QUOTA_HOLDS = 25.0  # percent of the periods: from here on a quota is why a GPU waits
QUOTA_MAY_HOLD = 5.0  # and from here on it may be, when others leave the job its CPUs


POLLING = 45.0  # percent of the power limit: an RTX 3090 that only polls draws 43 % (sglang #10489)
POLLS = 25.0  # percent of the looks: fewer may each fall into the same short phase of a step
QUIET_MEMORY = 5.0  # percent of the time in which the memory of a GPU that only polls is busy
AT_WORK = (
    f"NCCL #968, sglang #10489: a kernel that polls keeps an SM busy, draws at most {POLLING:g} % "
    "of the power limit and hardly uses the memory"
)
LOST = (
    "nvmlReturn_t: NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, an error instead of a "
    "handle; a revision of ff on the PCI bus: it no longer answers"
)
HELD = "nvmlDeviceGetCurrentClocksEventReasons: locked or application clocks hold it"


class Threshold(Struct, frozen=True):
    """`figure` at least, or at most, `value`. A count either holds or does not: it has no
    margin.
    """

    figure: str
    at_least: bool
    value: float
    source: str
    is_count: bool = False


class CauseRule(Struct, frozen=True):
    """Conditions which together lead to a cause."""

    cause: Cause
    name: str
    thresholds: tuple[Threshold, ...]
    next_step: str = ""  # instead of the one of its cause
    doubt: str = ""  # what looks the same, so that the cause is not certain by this rule alone
    is_unsure: bool = False  # so much the same that the confidence is low


def _minimum(figure: str, value: float, source: str) -> Threshold:
    return Threshold(figure, True, value, source)


def _maximum(figure: str, value: float, source: str) -> Threshold:
    return Threshold(figure, False, value, source)


WAITS = _maximum("sm_busy", BUSY, NVML_BUSY)
WORKS = _minimum("sm_busy", QUIET, NVML_BUSY)
RUNNING = "nvmlDeviceGetComputeRunningProcesses"
USED = Threshold("processes", True, 1.0, RUNNING, is_count=True)
UNUSED = Threshold("processes", False, 0.0, RUNNING, is_count=True)
READS = _maximum("blocked", 30.0, IOSTAT)
RESET_CLOCKS = (
    "reset its clocks unless the site set them: nvidia-smi -rgc -i BUS_ID resets locked clocks, "
    "nvidia-smi -rac -i BUS_ID application clocks, and without -i both act on every GPU; a service "
    "or a job's prolog may set them again"
)


def _waiting(
    cause: Cause, name: str, *thresholds: Threshold, next_step: str = "", doubt: str = ""
) -> CauseRule:
    """A rule for a GPU that is in use and waits."""
    return CauseRule(cause, name, (WAITS, USED, *thresholds), next_step, doubt)


RULES = (
    CauseRule(
        Cause.GPU,
        "the GPU is busy, and nothing slows it down",
        (
            _minimum("sm_busy", BUSY, NVML_BUSY),
            _minimum("at_work", 1.0, AT_WORK),
            _maximum("polling", POLLS, AT_WORK),
            _maximum("slowed", 10.0, REASONS),
        ),
    ),
    CauseRule(
        Cause.SPINNING,
        "the GPU is busy, draws little power and hardly uses its memory",
        (
            _minimum("sm_busy", BUSY, NVML_BUSY),
            _maximum("at_work", 1.0, AT_WORK),
        ),
    ),
    CauseRule(
        Cause.SPINNING,
        "the GPU is busy, and for a part of the time draws little power and hardly uses its memory",
        (
            _minimum("sm_busy", BUSY, NVML_BUSY),
            _minimum("polling", POLLS, AT_WORK),
        ),
    ),
    CauseRule(
        Cause.LOST,
        "the driver says that the GPU is lost or must be reset, or the GPU left the PCI bus",
        (_minimum("lost", 50.0, LOST),),
    ),
    CauseRule(
        Cause.THROTTLED,
        "heat or the power brake lowers the clocks",
        (_minimum("slowed", 10.0, REASONS),),
    ),
    CauseRule(
        Cause.THROTTLED,
        "a setting holds the clocks below the maximum",
        (
            WORKS,
            _maximum("held_clock", HELD_LOW, HELD),
            _maximum("slowed", 10.0, REASONS),
            _maximum("power_capped", 10.0, REASONS),
        ),
        RESET_CLOCKS,
    ),
    CauseRule(
        Cause.THROTTLED,
        "a power limit below the board's default lowers the clocks",
        (
            _minimum("power_capped", 50.0, REASONS),
            _maximum(
                "limit",
                95.0,
                "nvmlDeviceGetPowerManagementDefaultLimit: the limit that the board is sold with",
            ),
            _maximum("clock", 90.0, FULL),
        ),
        "restore its power limit unless the site lowered it: nvidia-smi -i BUS_ID -pl WATTS; a "
        "service or a job's prolog may lower it again",
    ),
    CauseRule(
        Cause.THROTTLED,
        "the power limit lowers the clocks, and the GPU draws far less than its limit",
        (
            _minimum("sm_busy", BUSY, NVML_BUSY),
            _minimum("power_capped", 50.0, REASONS),
            _maximum("clock", SET_LOW, FULL),
            _maximum("power", 80.0, REASONS),
        ),
        "see which limit it is: nvidia-smi -q -d POWER -i BUS_ID shows those of the module and the "
        "chassis, too; then check the power supplies and the BMC's event log",
    ),
    CauseRule(
        Cause.THROTTLED,
        "a busy GPU stays below its maximum clock, and neither heat nor power is the reason",
        (
            _minimum("sm_busy", BUSY, NVML_BUSY),
            _maximum("clock", SET_LOW_WHILE_BUSY, FULL),
            _maximum("slowed", 10.0, REASONS),
            _maximum("power_capped", 10.0, REASONS),
        ),
        RESET_CLOCKS,
    ),
    CauseRule(
        Cause.THROTTLED,
        "clocks are set far below the maximum",
        (
            _minimum("sm_busy", 50.0, NVML_BUSY),
            _maximum("clock", SET_LOW, FULL),
            _maximum("slowed", 10.0, REASONS),
            _maximum("power_capped", 10.0, REASONS),
        ),
        RESET_CLOCKS,
    ),
    CauseRule(
        Cause.SUBMISSION,
        "one thread is hot, and the GPU works in short bursts",
        (
            WAITS,
            WORKS,
            USED,
            _minimum("thread_wants", 80.0, ONE_HOT),
            _minimum("thread_system", 5.0, ONE_HOT),
            Threshold("thread_system", False, 80.0, MAIN_HOT, is_count=True),
            Threshold("quiet", False, 30.0, SHORT, is_count=True),
            _maximum("hot_threads", 2.0, ONE_HOT),
            _maximum("link", 70.0, LINK),
            READS,
            Threshold("write_rate", False, 50.0, WRITES, is_count=True),
        ),
    ),
    CauseRule(
        Cause.SUBMISSION,
        "the process on the GPU calls another process for each small step",
        (
            WAITS,
            WORKS,
            USED,
            _minimum("thread_wants", 30.0, ONE_HOT),
            _minimum("switches", 10000.0, ROUND_TRIPS),
            _minimum("job_system", 30.0, ROUND_TRIPS),
            Threshold("read_rate", False, 50.0, ROUND_TRIPS, is_count=True),
            READS,
            _maximum("disk_busy", 50.0, IOSTAT),  # many short writes to a disk switch as often
        ),
    ),
    _waiting(
        Cause.PREPROCESSING,
        "all CPUs that the job may use are busy in user time",
        _minimum("saturation", 75.0, MANY_HOT),
        _minimum("active_threads", 3.0, MANY_HOT),
        _minimum("job_user", 60.0, MANY_HOT),
    ),
    CauseRule(
        Cause.PREPROCESSING,
        "the thread that submits is hot in user time, and copies little",
        (
            *(WAITS, WORKS, USED),
            _minimum("thread_wants", 80.0, MAIN_HOT),
            Threshold("thread_system", False, 5.0, MAIN_HOT, is_count=True),
            Threshold("hot_threads", False, 2.0, MAIN_HOT, is_count=True),
            Threshold("link", False, 3.0, PAGEABLE, is_count=True),
            READS,
        ),
        "see what it computes (py-spy top --nonblocking --pid PID); if it decodes or transforms, "
        "move that to loader workers (num_workers above 0) or to the GPU (DALI); if it calls many "
        "small kernels, use larger batches or CUDA graphs",
        "a program that calls many small kernels is also hot in user time",
    ),
    _waiting(
        Cause.PREPROCESSING,
        "threads of one process take turns on one core, as Python's do",
        _minimum("turns", 3.0, GIL),
        Threshold("turns_cpus", True, 0.8, GIL, is_count=True),
        Threshold("turns_cpus", False, 1.2, GIL, is_count=True),
        _minimum("turns_switches", 50.0, GIL),
        _maximum("hot_threads", 2.0, GIL),
        next_step="use processes instead of threads (multiprocessing, loader workers), or "
        "transforms that release the GIL; py-spy dump --nonblocking --pid PID shows which thread "
        "holds it",
        doubt="threads that wait for one another's locks take turns as well",
    ),
    _waiting(
        Cause.PREPROCESSING,
        "many threads are hot in user time",
        _minimum("hot_threads", 4.0, MANY_HOT),
        _minimum("job_user", 60.0, MANY_HOT),
    ),
    _waiting(
        Cause.PREPROCESSING,
        "a helper is hot, and the process on the GPU is not",
        _minimum("helper_wants", 80.0, ONE_HELPER),
        _maximum("thread_wants", 50.0, ONE_HELPER),
        _minimum("job_user", 60.0, MANY_HOT),
    ),
    _waiting(
        Cause.PREPROCESSING,
        "helpers that begin and end are hot, and the process on the GPU is not",
        _minimum("ended_helpers", 80.0, ONE_HELPER),
        _maximum("thread_wants", 50.0, ONE_HELPER),
        _minimum("job_user", 60.0, MANY_HOT),
    ),
    _waiting(
        Cause.PREPROCESSING,
        "its helpers wait for one another, and for CPUs that others use",
        _minimum("helpers_want", 80.0, ONE_HELPER),
        _minimum("cpu_starved", 30.0, STARVED),
        _maximum("thread_wants", 50.0, ONE_HELPER),
        _minimum("job_user", 60.0, MANY_HOT),
    ),
    _waiting(
        Cause.QUOTA,
        "its cgroup's CPU quota is used up",
        _minimum("quota_throttled", QUOTA_HOLDS, CFS),
    ),
    _waiting(
        Cause.STARVED,
        "its hottest thread waits for a CPU, and the job does not fill those that it may use",
        _minimum("cpu_starved", 20.0, STARVED),
        _maximum("own_share", 75.0, STARVED),
    ),
    _waiting(
        Cause.STORAGE,
        "the job's threads wait for storage",
        _minimum("blocked", 30.0, IOSTAT),
    ),
    _waiting(
        Cause.NETWORK,
        "a thread of the job waits for a TCP peer",
        _minimum("network", 50.0, CALL),
    ),
    _waiting(
        Cause.TRANSFER,
        "the PCIe link is saturated",
        _minimum("link", 70.0, LINK),
    ),
    CauseRule(
        Cause.TRANSFER,
        "copies and kernels take turns: the link is full whenever the GPU computes nothing",
        (
            WAITS,
            WORKS,
            USED,
            _minimum("link", 15.0, TURNS),
            _minimum("idle_link", 70.0, TURNS),
        ),
        "overlap copies with kernels: pinned memory, non_blocking=True and a prefetching loader; "
        "use smaller transfers (uint8, GPU-side decode); nsys shows copies and kernels in turn",
    ),
    CauseRule(
        Cause.TRANSFER,
        "one thread is hot in user time while the link carries what a core can copy",
        (
            *(WAITS, WORKS, USED),
            _minimum("thread_wants", 80.0, PAGEABLE),
            Threshold("thread_system", False, 10.0, PAGEABLE, is_count=True),
            Threshold("hot_threads", False, 2.0, PAGEABLE, is_count=True),
            Threshold("link", True, 3.0, PAGEABLE, is_count=True),
            Threshold("link", False, 70.0, PAGEABLE, is_count=True),
            READS,
        ),
        "pin the memory (pin_memory=True, non_blocking=True): perf top -t TID shows memcpy if its "
        "copies are pageable; if it shows decoding, move that to loader workers",
        "transforms in the thread that copies look the same",
    ),
    _waiting(
        Cause.MEMORY,
        "the job's cgroup is at its memory limit, and its pages are read back",
        _minimum("limit_hits", 5.0, LIMIT),
        _minimum("job_major_faults", 50.0, SWAPPING),
    ),
    _waiting(
        Cause.MEMORY,
        "the job's pages are read back from swap",
        _minimum("swapped_in", 100.0, SWAPPING),
        _minimum("job_major_faults", 50.0, SWAPPING),
    ),
    CauseRule(
        Cause.NUMA,
        "the job runs far from its GPU",
        (
            WAITS,
            WORKS,
            USED,
            _minimum("remote_cpus", 80.0, REMOTE),
            _minimum("job_cpus", FEW_TICKS, REMOTE),
        ),
        "start it on CPUs of the GPU's NUMA node: numactl --cpunodebind=N, or Slurm's "
        "--gpu-bind=closest; compare the time of a step before and after",
    ),
    CauseRule(
        Cause.NUMA,
        "the job's memory is far from its GPU",
        (
            WAITS,
            WORKS,
            USED,
            _minimum("remote_memory", 80.0, REMOTE),
            _minimum("job_cpus", FEW_TICKS, REMOTE),
        ),
    ),
    CauseRule(
        Cause.STUCK,
        "the job holds GPU memory, and sleeps on a lock or in the driver without ever waking",
        (
            _maximum("sm_busy", QUIET, NVML_BUSY),
            USED,
            _minimum("memory_used", LITTLE, SLEEPER),
            _maximum("job_cpus", 0.02, SLEEPER),
            _minimum("frozen", 100.0, UNMOVED),
            _maximum("serving", 50.0, CALL),
            READS,
        ),
    ),
    CauseRule(
        Cause.STUCK,
        "the job holds GPU memory, and its thread polls for a GPU that does nothing",
        (
            _maximum("sm_busy", QUIET, NVML_BUSY),
            USED,
            _minimum("memory_used", 20.0, SLEEPER),
            _minimum("spinning", 95.0, SPINNING),
            _maximum("hot_threads", 2.0, SPINNING),
            _maximum("read_rate", 0.1, SPINNING),
        ),
        "see where it spins (py-spy dump --nonblocking --pid PID): in a "
        "synchronization with the GPU, that GPU or another rank hangs; anywhere else the CPU "
        "works: wait for it",
        "a thread that computes without the GPU, as before its first step, and a server that polls "
        "for requests look the same",
        is_unsure=True,
    ),
    CauseRule(
        Cause.REQUESTS,
        "the job holds GPU memory, and waits for clients",
        (
            _maximum("sm_busy", QUIET, NVML_BUSY),
            USED,
            _minimum("memory_used", LITTLE, SLEEPER),
            _maximum("job_cpus", 0.1, SLEEPER),
            _minimum("serving", 80.0, CALL),
        ),
    ),
    CauseRule(
        Cause.IDLE,
        "no process uses the GPU",
        (
            _maximum("sm_busy", QUIET, NVML_BUSY),
            UNUSED,
            _maximum("unowned", 20.0, UNOWNED),
        ),
    ),
    CauseRule(
        Cause.IDLE,
        "its processes hold little memory, and do nothing",
        (
            _maximum("sm_busy", QUIET, NVML_BUSY),
            USED,
            _maximum("memory_used", LITTLE, SLEEPER),
            _maximum("job_cpus", 0.02, SLEEPER),
            _minimum("resting", 80.0, CALL),
            READS,
        ),
        "nothing to fix; if nobody needs its job any more, ask the owner to end it, which frees "
        "the GPU",
    ),
)
CLEAR = 1.2  # the margin from which a rule holds clearly

WEAK = (Cause.NUMA, Cause.IDLE)
"""Causes that say where a job runs, or that there is no job: reported next to another cause."""


class Effect(Struct, frozen=True):
    """The causes that a cause entails, if these hold too."""

    cause: Cause
    thresholds: tuple[Threshold, ...] = ()


MORE, LESS = 1.4, 0.5  # in between, the next watch may find the other one longer
OTHERS_MOST = _minimum("starved_ratio", MORE, STARVED)
ITSELF_MOST = Effect(Cause.STARVED, (_maximum("starved_ratio", LESS, STARVED),))
LESSER, SIMILAR = 0.5, 0.75  # of another wait: a wait for a CPU is minor, or may be as long
OTHER_WAITS = (Cause.STORAGE, Cause.NETWORK)
"""The causes that show another wait of the thread that waits for a CPU."""
OTHER_WAIT = Effect(Cause.STARVED, (_maximum("starved_of_waits", LESSER, STARVED),))
HOT = (Cause.PREPROCESSING, Cause.SUBMISSION, Cause.TRANSFER)
"""The causes that a hot thread shows."""
HOT_BY_OTHERS = (
    Effect(Cause.PREPROCESSING, (OTHERS_MOST,)),
    Effect(Cause.SUBMISSION, (OTHERS_MOST,)),
    Effect(
        Cause.TRANSFER,
        (OTHERS_MOST, _maximum("link", 70.0, LINK), _maximum("idle_link", 70.0, TURNS)),
    ),
)
HOT_BY_WAITS = (
    Effect(Cause.PREPROCESSING),
    Effect(Cause.SUBMISSION, (_maximum("hottest_thread", 80.0, STARVED),)),
    Effect(
        Cause.TRANSFER,
        (
            _maximum("hottest_thread", 80.0, STARVED),
            _maximum("link", 70.0, LINK),
            _maximum("idle_link", 70.0, TURNS),
        ),
    ),
)
EXPLAINS = {
    Cause.MEMORY: (
        Effect(Cause.STORAGE),
        Effect(
            Cause.SUBMISSION,
            (_minimum("job_system", 50.0, PAGING), _maximum("fault_time", 500.0, PAGING)),
        ),
    ),
    Cause.THROTTLED: (Effect(Cause.GPU), Effect(Cause.SPINNING)),
    Cause.QUOTA: (Effect(Cause.STARVED), *HOT_BY_WAITS),
    Cause.STARVED: HOT_BY_OTHERS,
    **dict.fromkeys(OTHER_WAITS, (OTHER_WAIT,)),
    **dict.fromkeys(HOT, (ITSELF_MOST,)),
}
"""A cause and the causes that it entails: a process that pages waits for the disk that holds the
pages, or is hot in the kernel that fetches them; a GPU with lowered clocks is busier, and draws
less power; a thread that may not run looks hot by its waits, unless it is hot without them; a full
link needs no hot thread. A thread that waits for a CPU for much longer than it runs is hot by
others; one that runs for much longer than it waits is late by its own work, and one that waits for
storage or a peer for much longer than for a CPU waits for these.
"""

POLLS_STEP = (
    "py-spy dump --nonblocking --pid PID shows whether it only polls in a collective; if it does, "
    "watch all ranks of its job at the same moment: nodevet diagnose -i INVENTORY --job JOB"
)
"""First, of a GPU that is busy and may only poll."""
GIVE_CPUS = (
    "give the job CPUs of its own with cpusets or weights (CPUWeight=, Slurm's --cpus-per-task "
    "with task/cgroup)"
)
AGAIN = "then watch it again, because another cause may show"
DRAIN = (
    "drain the node first, so that no new job starts on it (Slurm: scontrol update nodename=HOST "
    "state=drain reason=gpu_lost, Kubernetes: kubectl cordon HOST); keep `dmesg -T | grep -i xid` "
    "for the ticket; have the owners end the jobs of this GPU (fuser -v /dev/nvidia* names "
    "processes that still use one)"
)
NEEDS_RESET = (
    "reset it when no process uses it any more: nvidia-smi -r -i BUS_ID; never without -i, which "
    "resets every GPU; GPUs that NVLink connects reset only together"
)
POWER_CYCLE = "if that fails, power-cycle the node after its last job"
IF_AGAIN = (
    "if it happens again, replace the GPU; `nodevet plan` only writes a plan of this, and changes "
    "nothing"
)
LOST_STEP = (
    f"{DRAIN}; power-cycle the node after its last job: a GPU that is lost rarely takes a reset; "
    f"{IF_AGAIN}"
)
"""Instead, of a GPU that the driver calls lost, or that left the PCI bus."""
SMALL_READS = (
    "if the storage is healthy, the job needs larger reads (pack samples into shards), more of "
    "them at the same time, or a local NVMe cache"
)
PROFILE = "if it is only slow, nsys profile shows what its steps consist of"
COOL = "if heat slows it, check airflow, fans and inlet temperature"
SUPPLY = "check the power supplies and the BMC's event log"
NEXT = {
    Cause.GPU: "nothing to fix on this node; if the job is slow all the same, profile its kernels "
    "(nsys, then ncu): it needs faster kernels, larger batches or a faster GPU",
    Cause.SPINNING: "watch all ranks of its job at the same moment: nodevet diagnose -i INVENTORY "
    "--job JOB; the others wait for the rank that is idle, throttled or waiting; "
    "py-spy dump --nonblocking --pid PID shows whether this one is in a collective; if it serves "
    "one stage of a model, it also spins while it has no requests, and needs no action",
    Cause.LOST: f"{DRAIN}; {NEEDS_RESET}; {POWER_CYCLE}; {IF_AGAIN}",
    Cause.THROTTLED: f"{COOL}; if the power brake does, {SUPPLY}",
    Cause.SUBMISSION: "use larger batches, fused kernels or CUDA graphs; take logging, .item() and "
    "synchronizing calls out of the step; perf top -p PID shows cuLaunchKernel if this is the "
    "cause",
    Cause.PREPROCESSING: "start more loader workers if there are CPUs to run them: `nodevet feed` "
    "computes how many it takes; otherwise transform on the GPU (DALI), or store transformed data",
    Cause.STARVED: f"see in top who takes the CPUs, and ask the owner; {GIVE_CPUS}; {AGAIN}",
    Cause.QUOTA: "raise the quota (cpu.max, Kubernetes' limits.cpu), or start fewer threads than "
    "it allows: it stops all of them until the next period",
    Cause.STORAGE: "see whether the storage is slow: iostat -xz 1 shows disks, nfsiostat 1 NFS, ls "
    f"-l /proc/PID/fd the open files; {SMALL_READS}",
    Cause.TRANSFER: "move fewer bytes (uint8 samples, decoding on the GPU), and copy pinned memory "
    "while the GPU computes",
    Cause.MEMORY: "use fewer workers, less prefetch and pinned memory, or raise the memory limit",
    Cause.NUMA: "start it bound to the GPU's NUMA node: numactl --cpunodebind=N --membind=N, or "
    "Slurm's --gpu-bind=closest",
    Cause.NETWORK: "look at the peer and the way to it: ss -tinp shows its silence (lastrcv) and "
    "retransmissions; fetch over more connections at once and ahead, or keep a local copy",
    Cause.REQUESTS: "nothing to fix, and no reason to stop it: it is a server without requests; "
    "ask its load balancer or its queue if it should have some",
    Cause.STUCK: "see where it sleeps (py-spy dump --nonblocking --pid PID, cat /proc/PID/stack), "
    "and look at the other ranks: a barrier, a lock, or a loader that died; then its owner can "
    "restart it",
    Cause.IDLE: "nothing to fix: give it work, or ask the scheduler why it has none",
    Cause.MIXED: "change one thing at a time, and watch again after each",
    Cause.UNCLEAR: "watch it for longer (--duration 60s), as root; py-spy dump --nonblocking --pid "
    f"PID shows what it does now: if it waits for another process, look at that one; {PROFILE}",
}
"""What to do next, by cause."""
SLOWED = {
    "thermal slowdown": "heat slows it: nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i BUS_ID; if "
    "only this GPU is hot, check its heat sink and seating, else airflow, fans and inlet "
    "temperature",
    "power brake": f"{SUPPLY}: the power brake slows it",
}
"""Instead, by the reason that slows a GPU."""
ASK_OWNERS = "ask the owner of these processes about them, and leave them running: {}"
ASK_USER = "ask the job's user whether these processes are part of the job: {}"
"""Instead, if nodevet saw which processes take the CPUs."""
LET_RUN = (
    "ask who stopped it (a debugger, a snapshot, an operator); `kill -CONT PID` lets it go on; "
    "cgroup.freeze or freezer.state shows whether its cgroup is frozen"
)
"""Instead, if the first thread of a stuck job is stopped or frozen."""
MAY_BE_STUCK = (
    "see what its first thread waits for (py-spy dump --nonblocking --pid PID); if it waits for "
    "work (queue.get) or for the thread that serves (join), it is a server without requests, and "
    "needs no action; if it waits at a barrier or for another rank, it is stuck; stop nothing "
    "before its owner says so"
)
"""Instead, if one thread of a job waits for requests or work, and the first one for a lock."""
