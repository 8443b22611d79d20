"""The threads of a process while it is watched: /proc/<pid>/task/<tid>/*, see proc(5)."""

import os

from nodevet.remote.probe.files import Reading, attempt, integer, names, path_under
from nodevet.remote.probe.watch import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container

SMALL = 4096  # bytes of a file of /proc that has one row, or some fifty
TICKS = ("user", "system")
SWITCHES = ("switches", "preemptions")
COUNTS = TICKS + SWITCHES + ("waited_ns",)
RESTING = (  # functions of the kernel in which a thread without work sleeps, "" if not told
    "",
    "0",
    "futex_wait_queue_me",  # up to 5.15
    "futex_wait_queue",
    "futex_do_wait",  # since 6.14
    "ep_poll",
    "do_epoll_wait",
    "poll_schedule_timeout",
    "do_select",
    "do_sys_poll",
    "hrtimer_nanosleep",
    "do_nanosleep",
    "do_wait",
    "do_sigtimedwait",
    "sigsuspend",
    "sys_pause",
    "__x64_sys_pause",
    "__arm64_sys_pause",
    "pipe_wait",  # up to 5.4
    "pipe_read",
    "anon_pipe_read",  # since 6.14
    "unix_stream_data_wait",
    "unix_stream_read_generic",
    "skb_wait_for_more_packets",
    "__skb_wait_for_more_packets",
    "inet_csk_accept",
    "sk_wait_data",
    "wait_woken",
    "eventfd_read",
    "worker_thread",
    "io_wqe_worker",  # up to 6.3
    "io_wq_worker",
)
MOMENTS = 2  # looks by chance at a thread that had just gone on
NOT_SHOWN = "the kernel does not show this user where it sleeps"
WARM = 5  # looks for which a thread is followed once it rests
ROWS = {b"voluntary_ctxt_switches": "switches", b"nonvoluntary_ctxt_switches": "preemptions"}


def small(path: str) -> bytes:
    """The bytes of a small file of /proc, without what `read` does for captured trees."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, SMALL)
    finally:
        os.close(file)


def stat_of(data: bytes) -> "dict[str, Any]":
    """A dict of the fields of a row of stat. Raises ValueError."""
    text = data.decode("utf-8", "backslashreplace")
    start, end = text.find("("), text.rfind(")")
    words = text[end + 1 :].split()
    if not 0 <= start < end or len(words) < 37:
        raise ValueError("not a process's stat")
    return {
        "name": text[start + 1 : end],
        "state": words[0][:1],
        "parent": integer(words[1]),
        "major_faults": integer(words[9]),
        "user": integer(words[11]),
        "system": integer(words[12]),
        "children_user": integer(words[13]),
        "children_system": integer(words[14]),
        "threads": integer(words[17]),
        "started": integer(words[19]),
        "resident_pages": integer(words[21]),
        "cpu": integer(words[36]),
        "io_delay_ticks": integer(words[39]) if len(words) > 39 else None,
    }


def switches_of(data: bytes) -> "dict[str, int]":
    """{switches, preemptions} of a status file. Raises ValueError."""
    found = {}
    for row in data.splitlines():
        key, _, value = row.partition(b":")
        if key in ROWS:
            found[ROWS[key]] = integer(value.decode("ascii", "backslashreplace"))
    return found


class WatchedThread(object):
    """One thread: its counters at the first look, and what later looks found."""

    def __init__(self, place: str, tid: int, born_s: "float | None" = None) -> None:
        """`born_s`: when it was seen first, of one that was not there at the first look; all that
        it did was while it was watched."""
        self.tid = tid
        self.place = "{}{}/".format(place, tid)
        self.born_s = born_s
        self.looked_s: "float | None" = None
        self.ended_s: "float | None" = None
        self.states: "list[str]" = []
        self.ticks: "list[int | None]" = []
        self.waits: "dict[str, int]" = {}  # wchan: at how many looks
        self.asleep_in = ""
        self.rested = self.unseen = 0  # looks
        self.sights = 0
        self.why: "str | None" = None
        self.first: "dict[str, Any]" = {} if born_s is None else dict.fromkeys(COUNTS, 0)
        self.last: "dict[str, Any]" = {}

    def look(self, whole: bool, at: float = 0.0) -> None:
        """Take its state; with `whole` its counters too. A thread that has ended says `-`."""
        self.looked_s = at
        stat, _ = attempt(lambda: stat_of(small(self.place + "stat")))
        if stat is None:
            self.ended_s = at if self.ended_s is None else self.ended_s
            self.skip()
            return
        self.ended_s = None
        self.sights += 1
        self.states.append(stat["state"])
        self.ticks.append(stat["user"] + stat["system"])
        ran = bool(self.last) and self.ticks[-1] != self.last["user"] + self.last["system"]
        self.last.update(stat)
        if stat["state"] in "SD":
            self.sleep()
        self.rested = self.rested + 1 if self.is_resting() and not ran else 0
        if whole:
            self.last.update(dict.fromkeys(SWITCHES))
            self.last.update(attempt(lambda: switches_of(small(self.place + "status")))[0] or {})
            waited, _ = attempt(
                lambda: integer(small(self.place + "schedstat").split()[1].decode())
            )
            self.last["waited_ns"] = waited
        if not self.first:
            self.first = dict(self.last)

    def skip(self) -> None:
        """Not this time."""
        self.states.append("-")
        self.ticks.append(None)

    def is_resting(self) -> bool:
        """Whether it sleeps in one of the ways in which a thread without work does."""
        # what a compiler made of a function has its name, a point and more
        return self.states[-1:] == ["S"] and self.asleep_in.partition(".")[0] in RESTING

    def is_active(self) -> bool:
        """Whether it is worth each look between the first and the last: it ran, or waited for
        something, and not long ago."""
        return self.rested < (1 if self.sights == 1 and self.born_s is None else WARM)

    def sleep(self) -> None:
        wchan, why = attempt(
            lambda: small(self.place + "wchan").decode("ascii", "backslashreplace")
        )
        self.asleep_in = wchan or ""
        if wchan is None:
            self.why = why
        elif wchan == "0":  # it runs again already, or this user may not see where it sleeps
            self.unseen += 1
        else:
            self.waits[wchan[:100]] = self.waits.get(wchan[:100], 0) + 1

    def told(self, looks: int) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.ThreadActivity."""
        record = Reading(tid=self.tid, born_s=self.born_s, ended_s=self.ended_s)
        record["states"] = "".join(["-"] * (looks - len(self.states)) + self.states)
        if not self.last:
            record.fail_all(("name", "cpu"), "the thread ended")
        else:
            record["name"], record["cpu"] = self.last["name"], self.last["cpu"]
        told: "tuple[str, ...]" = COUNTS
        if self.ended_s is not None:  # what it did after the look before is not known
            told = TICKS if self.sights > 1 or (self.sights and self.born_s is not None) else ()
            record.fail_all([field for field in COUNTS if field not in told], "the thread ended")
        counted(record, told, self.first, self.last)
        before = [None if self.born_s is None else 0] * (looks - len(self.ticks))
        ticks = before + self.ticks
        known = [each for each in ticks if each is not None]
        if known and known[-1] != known[0]:
            record["ticks"] = ticks
        record["waits"] = self.waits
        if not self.waits and (self.why or self.unseen >= MOMENTS):
            record.fail("waits", self.why or NOT_SHOWN)
        return record


def threads_of(
    root: str, pid: int, known: "Container[int]" = (), born_s: "float | None" = None
) -> "list[WatchedThread]":
    """The threads of a process but those that are known. Raises OSError, ValueError."""
    place = path_under(root, "/proc/{}/task".format(pid)) + "/"
    tids = [int(name) for name in names(root, "/proc/{}/task".format(pid)) if name.isdigit()]
    return [WatchedThread(place, tid, born_s) for tid in sorted(tids) if tid not in known]
