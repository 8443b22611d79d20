"""What the threads of a job wait for: requests, the network, a lock, the driver (pure).

The system call decides, with the socket or file of its first argument; without it, the kernel's
function. A thread that never woke has as many context switches after the watch as before.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from nodevet.diagnose.connections import WHAT, connection_figure
from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import counter_growth, rate
from nodevet.evidence.process_activity import ProcessActivity, Sleep, ThreadActivity

LEAST = 3  # looks at a thread below which its states say nothing
MOVES = 1.0  # a second: a thread that is not a first one, and wakes so often, is at work
LIBRARIES = ("cuda", "NCCL", "pt_", "nvtx", "jemalloc")
"""How the names of threads begin that a library starts, and that wait all the time."""
DRIVER = ("nvidia", "nv_", "uvm_", "_nv", "rm_", "os_acquire")
DRIVER_FILE = "/dev/nvidia"
TERMINALS = ("/dev/tty", "/dev/pts/", "/dev/console")
FREEZER = ("__refrigerator", "do_freezer_trap")


class SleepKind(str, Enum):
    """What a thread sleeps for, in words."""

    REQUESTS = "requests"
    RANKS = "requests, or the other ranks of its job"
    NETWORK = "the network"
    LOCK = "a lock, or another thread"
    SHARED = "a lock that processes share, or a thread to end"
    DRIVER = "the driver"
    POLL = "one of several things"
    PIPE = "another process"
    CHILD = "a child to end"
    SPAWN = "a child to start its program (vfork)"
    FILE_LOCK = "a lock on a file (lslocks shows who holds it)"
    PAUSE = "a timer of its own"
    TERMINAL = "its user, at a terminal"
    HELD = "whoever froze its cgroup, to let it run on"
    OTHER = "something else"


CALLS = {
    **dict.fromkeys(("accept", "accept4"), SleepKind.REQUESTS),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2"), SleepKind.POLL),
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6"), SleepKind.POLL),
    **dict.fromkeys(("recvfrom", "recvmsg", "sendto", "sendmsg"), SleepKind.NETWORK),
    "futex": SleepKind.LOCK,
    "shared futex": SleepKind.SHARED,
    **dict.fromkeys(("flock", "fcntl"), SleepKind.FILE_LOCK),
    **dict.fromkeys(("wait4", "waitid"), SleepKind.CHILD),
    **dict.fromkeys(("vfork", "clone", "clone3"), SleepKind.SPAWN),
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), SleepKind.PAUSE),
}
PLACES = (  # how the kernel's functions begin
    (("inet_csk_accept", "unix_accept"), SleepKind.REQUESTS),
    (("ep_poll", "do_epoll", "poll_", "do_select", "do_sys_poll", "do_poll"), SleepKind.POLL),
    (("sk_wait_data", "sk_stream_wait", "wait_woken", "tcp_", "inet_wait"), SleepKind.NETWORK),
    (("futex_",), SleepKind.LOCK),
    (("flock_lock", "posix_lock", "locks_lock"), SleepKind.FILE_LOCK),
    (("kernel_clone", "_do_fork", "wait_for_vfork"), SleepKind.SPAWN),
    (DRIVER, SleepKind.DRIVER),
    (("pipe_", "anon_pipe", "unix_stream"), SleepKind.PIPE),
    (("do_wait",), SleepKind.CHILD),
    (("hrtimer_nanosleep", "do_nanosleep", "do_sigtimedwait"), SleepKind.PAUSE),
)


SILENT = ", which sent nothing"


class ThreadWait(NamedTuple):
    """What one thread slept for at most of the looks at which it slept."""

    kind: SleepKind
    share: float  # percent of the looks at it
    place: str  # the kernel's function
    sleep: Sleep | None = None
    moved: float | None = None  # voluntary context switches a second

    @property
    def is_frozen(self) -> bool:
        return self.moved == 0 and self.share >= 100


def waiting(process: ProcessActivity, thread: ThreadActivity, seconds: float) -> ThreadWait | None:
    """What a thread waited for; None if too few looks show where it slept."""
    looks = len((thread.states or "").replace("-", ""))
    asleep = (thread.states or "").count("S") + (thread.states or "").count("D")
    if not looks or (looks < LEAST and counter_growth(thread.switches) != 0):
        return None
    place = max(thread.waits or {}, key=lambda name: (thread.waits or {})[name], default="")
    sleep = (thread.sleeps or (None,))[0]
    if not place and sleep is None:
        return None
    kind = kind_of(place, sleep, process.stack or () if thread.tid == process.pid else ())
    if kind is SleepKind.REQUESTS and is_rank(process):  # whichever of two ranks connected
        kind = SleepKind.NETWORK if sleep and is_receive(sleep) else SleepKind.RANKS
    return ThreadWait(kind, 100.0 * asleep / looks, place, sleep, rate(thread.switches, seconds))


def kind_of(place: str, sleep: Sleep | None, stack: Iterable[str] = ()) -> SleepKind:
    """The kind of a sleep by its system call, else by the kernel's function.

    >>> kind_of("wait_woken", Sleep(call="recvfrom", looks=3, connections=1))
    <SleepKind.NETWORK: 'the network'>
    >>> kind_of("rwsem_down_read_slowpath", None, ["rwsem_down_read_slowpath", "uvm_ioctl"])
    <SleepKind.DRIVER: 'the driver'>
    """
    if place.startswith(FREEZER):  # whatever call it was in
        return SleepKind.HELD
    if any(name.startswith(DRIVER) for name in stack):
        return SleepKind.DRIVER
    by_place = next((kind for names, kind in PLACES if place.startswith(names)), SleepKind.OTHER)
    if sleep is None:
        return by_place
    if sleep.call == "ioctl" and (sleep.path or "").startswith(DRIVER_FILE):
        return SleepKind.DRIVER
    if (sleep.path or "").startswith(TERMINALS):
        return SleepKind.TERMINAL
    kind = CALLS.get(sleep.call, by_place)
    if kind is SleepKind.NETWORK and not sleep.connections and sleep.connections is not None:
        return SleepKind.PIPE  # of the same machine
    if kind in (SleepKind.NETWORK, SleepKind.POLL) and sleep.listens and not is_poll(sleep):
        return SleepKind.REQUESTS
    if kind is SleepKind.POLL and sleep.connections and not sleep.listens:
        return SleepKind.NETWORK
    return kind


def is_poll(sleep: Sleep | None) -> bool:
    """Whether a sleep may wait for any open file of its process: the kernel does not show which."""
    return sleep is not None and sleep.call in ("poll", "ppoll", "select", "pselect6")


def is_receive(sleep: Sleep) -> bool:
    """Whether it waits in a call for one peer."""
    return CALLS.get(sleep.call) is SleepKind.NETWORK


def is_rank(process: ProcessActivity) -> bool:
    """Whether it says that it is one of several ranks."""
    return process.master is not None if process.ranks is None else process.ranks > 1


class JobWait(NamedTuple):
    """A thread of the job and what it waits for."""

    process: ProcessActivity
    thread: ThreadActivity
    waiting: ThreadWait

    @property
    def is_first(self) -> bool:
        return self.thread.tid == self.process.pid

    @property
    def text(self) -> str:
        """`python 12 in recvfrom from 10.0.0.5:443`."""
        sleep = self.waiting.sleep
        call = sleep.call if sleep and not sleep.call.isdigit() else self.waiting.place
        peer = f" from {sleep.peer}" if sleep and sleep.peer and not sleep.listens else ""
        name = f"{self.process.command or '?'} {self.process.pid}"
        if self.waiting.kind is SleepKind.HELD:
            return f"{name} in a frozen cgroup"
        if self.waiting.kind is SleepKind.DRIVER:
            call += " of the driver"
        thread = "" if self.is_first else f" thread {self.thread.tid}"
        silent = SILENT if peer and self.waiting.moved == 0 else ""
        return f"{name}{thread} in {call}{peer}{silent}"


def job_waits(processes: Iterable[ProcessActivity], seconds: float) -> list[JobWait]:
    """The waits of every thread that no library started."""
    return [
        JobWait(process, thread, found)
        for process in processes
        for thread in process.threads or ()
        if not (thread.name or "").startswith(LIBRARIES) or thread.tid == process.pid
        if (found := waiting(process, thread, seconds)) is not None
    ]


SOME = 30.0  # percent of the looks: less of an unknown wait decides nothing
UNREAD = "which connection a thread waits for was not read"
NAMES = {
    "serving": "time in which a thread of the GPU's processes waited for requests",
    "network": "time in which a thread of the job waited for the network",
    "frozen": "time in which the first threads of the GPU's processes slept on a lock or in the "
    "driver and never woke, or were halted",
    "spinning": "time in which a thread of the GPU's processes ran without ever waiting",
    "resting": "time in which the first threads of the GPU's processes waited for a time to pass, "
    "requests or a user",
    "paced": "time in which the first threads of the GPU's processes slept for a time of their "
    "own, too long to poll for data",
    "may_go_on": "time in which another thread waited for what lets the job go on",
}


def wait_figures(
    processes: Iterable[ProcessActivity], on_gpu: Iterable[int], seconds: float
) -> Iterator[Figure]:
    """What the threads of a job waited for; `on_gpu`: the processes that use the GPU."""
    listed, pids = list(processes), frozenset(on_gpu)
    why = unknown_why(listed)
    waits = job_waits(listed, seconds)
    own = [wait for wait in waits if wait.process.pid in pids]
    partly = why or unwatched_why(listed)
    alive = [process for process in listed if process.pid in pids and process.ended_s is None]
    asked = [wait for wait in own if wait.waiting.kind is SleepKind.REQUESTS]
    served = {wait.process.pid for wait in asked}
    all_serve = served.issuperset(process.pid for process in alive)
    yield _worst("serving", asked if all_serve else [], partly or unread_why(own))
    at_network = [wait for wait in waits if is_at_network(wait, pids)]
    yield _worst("network", at_network, partly or unread_why(at_network))
    top = _top(at_network)
    yield connection_figure(top.waiting.sleep) if top else Figure("lost_segments", 0.0, "%", WHAT)
    first = [wait for wait in own if wait.is_first]
    yield _frozen(first, listed, pids, why)
    yield _resting(first, alive, why)
    yield _worst("paced", [wait for wait in first if is_paced(wait)], why)
    yield _worst("may_go_on", [wait for wait in waits if may_go_on(wait, pids)], why)
    yield _spinning([process for process in listed if process.pid in pids], seconds)


def unwatched_why(processes: Iterable[ProcessActivity]) -> str:
    """Why some threads of these were not watched; empty if all were."""
    partly = [process for process in processes if process.threads and "threads" in process.errors]
    return partly[0].why("threads") if partly else ""


def unread_why(waits: Iterable[JobWait]) -> str:
    """Why nodevet cannot say whether one of these waits for requests or a peer; else empty."""
    is_unread = any(
        wait.waiting.kind in (SleepKind.POLL, SleepKind.NETWORK)
        and wait.waiting.share >= SOME
        and (wait.waiting.sleep is None or wait.waiting.sleep.listens is None)
        for wait in waits
    )
    return UNREAD if is_unread else ""


def is_at_network(wait: JobWait, pids: frozenset[int]) -> bool:
    """Whether it waits for the network and the job may wait for it. Only the first thread of a
    process on the GPU counts without waking now and then: threads of libraries and idle helpers
    sleep in recv all the time, and loaders that wait in poll have the sockets of their parent."""
    is_own = wait.is_first and wait.process.pid in pids and not is_poll(wait.waiting.sleep)
    is_at_work = is_own or (wait.waiting.moved or 0.0) >= MOVES
    return wait.waiting.kind is SleepKind.NETWORK and is_at_work


def unknown_why(processes: Iterable[ProcessActivity]) -> str:
    """Why nodevet cannot say where a thread of these slept; empty if it can."""
    for process in processes:
        for thread in process.threads or ():
            if thread.waits is None and process.ended_s is None and thread.ended_s is None:
                return thread.why("waits") or "where a thread slept was not read"
            if not thread.states and thread.ended_s is None:
                return thread.why("states") or "the states of a thread were not read"
    return ""


def is_held(wait: JobWait) -> bool:
    """Whether it is a first thread that slept on a lock, in the driver or in a frozen cgroup, and
    never woke."""
    return wait.is_first and wait.waiting.kind in STUCK_IN and wait.waiting.is_frozen


def _worst(name: str, waits: list[JobWait], why: str) -> Figure:
    top = _top(waits)
    if top is None or why:
        return Figure(name, None if why else 0.0, "%", NAMES[name], why)
    return Figure(name, top.waiting.share, "%", NAMES[name], note=top.text)


def _top(waits: list[JobWait]) -> JobWait | None:
    """A first thread that waits, or else the one that waits most."""
    return max(waits, key=lambda wait: (wait.is_first, wait.waiting.share), default=None)


def _frozen(
    first: list[JobWait], processes: list[ProcessActivity], pids: frozenset[int], why: str
) -> Figure:
    """100 if each first thread slept on a lock or in the driver, and never woke."""
    alive = [process for process in processes if process.pid in pids and process.ended_s is None]
    if any(wait.waiting.moved is None for wait in first):
        why = why or "the context switches of a thread were not read"
    held = [wait for wait in first if is_held(wait)]
    texts = [*filter(None, map(halted_text, alive)), *(wait.text for wait in held)]
    share = 100.0 if alive and len(texts) == len(alive) else 0.0
    note = texts[0] if share else ""
    return Figure("frozen", None if why else share, "%", NAMES["frozen"], why, note)


STUCK_IN = (SleepKind.LOCK, SleepKind.DRIVER, SleepKind.HELD)
HALTS = {"T": "a signal", "t": "a debugger"}  # states of proc_pid_stat(5)


def halted_text(process: ProcessActivity) -> str:
    """`python 12 stopped by a signal`, if it was at all looks; else empty."""
    first = next((each for each in process.threads or () if each.tid == process.pid), None)
    states = {*((first.states if first else None) or "").replace("-", "")}
    who = HALTS.get(states.pop()) if len(states) == 1 else None
    return f"{process.command or '?'} {process.pid} stopped by {who}" if who else ""


def _resting(first: list[JobWait], alive: list[ProcessActivity], why: str) -> Figure:
    """The lowest share of the first threads. A thread that waits for anything else needs help."""
    shares = {each.process.pid: each.waiting.share for each in first if each.waiting.kind in RESTS}
    least = min((shares.get(each.pid, 0.0) for each in alive), default=100.0)
    return Figure("resting", None if why else least, "%", NAMES["resting"], why)


RESTS = (SleepKind.PAUSE, SleepKind.REQUESTS, SleepKind.TERMINAL)


def is_paced(wait: JobWait) -> bool:
    """Whether it sleeps for 20 ms to half a second at a time: shorter sleeps poll for data, and a
    first thread that sleeps longer may only wait for signals."""
    is_pause = wait.waiting.kind is SleepKind.PAUSE
    return is_pause and LONGEST_NAPS <= (wait.waiting.moved or 0.0) <= SHORTEST_NAPS


LONGEST_NAPS, SHORTEST_NAPS = 2.0, 50.0  # a second


def may_go_on(wait: JobWait, pids: frozenset[int]) -> bool:
    """Whether it waits for a time to pass, or, in a process on the GPU, at sockets or files: what
    comes there may be work for the first thread, as in the engine of an inference server."""
    if wait.is_first and wait.process.pid in pids:
        return False
    kind = wait.waiting.kind
    return kind is SleepKind.PAUSE or (kind in INPUTS and wait.process.pid in pids)


INPUTS = (SleepKind.POLL, SleepKind.NETWORK, SleepKind.PIPE, SleepKind.REQUESTS)


def _spinning(processes: list[ProcessActivity], seconds: float) -> Figure:
    """The thread that was ready to run at most looks and never slept by itself."""
    share, note = 0.0, ""
    for process in processes:
        for thread in process.threads or ():
            looks = (thread.states or "").replace("-", "")
            if thread.switches is None and looks.count("R") and thread.ended_s is None:
                why = "the context switches of a thread were not read"
                return Figure("spinning", None, "%", NAMES["spinning"], why)
            ready = 100.0 * looks.count("R") / len(looks) if len(looks) >= LEAST else 0.0
            if ready > share and (rate(thread.switches, seconds) or 0.0) < MOVES:
                share, note = ready, f"{process.command or '?'} {process.pid} thread {thread.tid}"
    return Figure("spinning", share, "%", NAMES["spinning"], note=note)


def place_text(processes: Iterable[ProcessActivity], pids: Iterable[int], seconds: float) -> str:
    """`python 12 in epoll_wait waits for requests`; empty if not known."""
    wanted = frozenset(pids)
    waits = job_waits([process for process in processes if process.pid in wanted], seconds)
    first = max(
        (wait for wait in waits if wait.is_first), key=lambda wait: wait.waiting.share, default=None
    )
    if first is None or first.waiting.share < LIKELY:
        return ""
    if first.waiting.kind is SleepKind.OTHER:
        return f"{first.text} sleeps"
    return f"{first.text} waits for {first.waiting.kind.value}"


LIKELY = 50.0  # percent of the looks
