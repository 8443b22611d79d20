"""The threads of a watched process: /proc/<pid>/task/<tid>/*, see proc(5)."""

import os
import re

from nodevet.remote.probe.files import Reading, attempt, integer, names, path_under, split_stat
from nodevet.remote.probe.watch import put_counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container

SMALL = 4096  # bytes of a file of /proc with at most some fifty rows
TICKS = ("user", "system")
SWITCHES = ("switches", "preemptions")
COUNTS = TICKS + SWITCHES + ("waited_ns",)
DELAY = "io_delay_ticks"
RESTING = (  # kernel functions in which an idle thread sleeps; "" if unknown
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
TRIES = 5  # to read where a thread sleeps, if it runs again meanwhile
MOST_UNSHOWN = 2  # looks at a sleeping thread: Linux 6.12 has some asleep in the run queue, with 0
NOT_SHOWN = "the kernel does not show this user where it sleeps"
MOST_MISSED = 0.25  # of the looks; from 0.3 on, a job may wait for storage
MISSED = "it ran again each time before nodevet could read where it sleeps"
ENDED = ("ENOENT", "ESRCH")
ASLEEP = re.compile(rb"^State:\s*[SD]", re.MULTILINE)
WARM = 5  # looks at a thread after it began to rest
ROWS = {b"voluntary_ctxt_switches": "switches", b"nonvoluntary_ctxt_switches": "preemptions"}


def read_small(path: str) -> bytes:
    """The bytes of a small file of /proc; faster than `read`."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, SMALL)
    finally:
        os.close(file)


def parse_stat_row(data: bytes) -> "dict[str, Any]":
    """{field: value} of a row of stat. Raises ValueError."""
    text = data.decode("utf-8", "backslashreplace")
    command, words = split_stat(text, 37)
    return {
        "name": command,
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


def parse_switches(data: bytes) -> "dict[str, int]":
    """{switches, preemptions} of a status file. Raises ValueError."""
    switches = {}
    for row in data.split(b"\n"):
        key, _, value = row.partition(b":")
        if key in ROWS:
            switches[ROWS[key]] = integer(value.decode("ascii", "backslashreplace"))
    return switches


class WatchedThread(object):
    """A thread: its counters at the first look, and what later looks found."""

    def __init__(self, task_folder: str, tid: int, born_s: "float | None" = None) -> None:
        """`born_s`: when a thread was first seen that did not exist at the first look; its counters
        began at 0."""
        self.tid = tid
        self.folder = "{}{}/".format(task_folder, tid)
        self.born_s = born_s
        self.last_look_s: "float | None" = None
        self.ended_s: "float | None" = None
        self.states: "list[str]" = []
        self.ticks: "list[int | None]" = []
        self.cpus: "list[int | None]" = []
        self.waits: "dict[str, int]" = {}  # wchan: at how many looks
        self.asleep_in = ""
        self.rested = self.unseen = self.missed = 0  # looks
        self.sights = 0
        self.why: "str | None" = None
        self.first: "dict[str, Any]" = {} if born_s is None else dict.fromkeys(COUNTS + (DELAY,), 0)
        self.last: "dict[str, Any]" = {}

    def look(self, with_counters: bool, at: float = 0.0) -> None:
        """Read its state, `-` after its end; with `with_counters` its counters, too."""
        self.last_look_s = at
        stat, _ = attempt(lambda: parse_stat_row(read_small(self.folder + "stat")))
        if stat is None:
            self.ended_s = at if self.ended_s is None else self.ended_s
            self.skip()
            return
        self.ended_s = None
        self.sights += 1
        self.states.append(stat["state"])
        self.ticks.append(stat["user"] + stat["system"])
        self.cpus.append(stat["cpu"])
        ran = bool(self.last) and self.ticks[-1] != self.last["user"] + self.last["system"]
        self.last.update(stat)
        if stat["state"] in "SD":
            self.sleep()
        self.rested = self.rested + 1 if self.is_resting() and not ran else 0
        if with_counters:
            self.last.update(dict.fromkeys(SWITCHES))
            self.last.update(
                attempt(lambda: parse_switches(read_small(self.folder + "status")))[0] or {}
            )
            waited, _ = attempt(
                lambda: integer(read_small(self.folder + "schedstat").split()[1].decode())
            )
            self.last["waited_ns"] = waited
        if not self.first:
            self.first = dict(self.last)

    def skip(self) -> None:
        """Skip this look."""
        self.states.append("-")
        self.ticks.append(None)
        self.cpus.append(None)

    def look_again(self, at: float) -> None:
        """Look, instead of the skip before."""
        del self.states[-1], self.ticks[-1], self.cpus[-1]
        self.look(False, at)

    def is_resting(self) -> bool:
        """Whether it sleeps as an idle thread does."""
        # a compiler may add a dot and a suffix to a function's name
        return self.states[-1:] == ["S"] and self.asleep_in.partition(".")[0] in RESTING

    def is_active(self) -> bool:
        """Whether to look at it between the first look and the last: it ran or waited recently."""
        return self.rested < (1 if self.sights == 1 and self.born_s is None else WARM)

    def sleep(self) -> None:
        """Count the kernel function in which it sleeps."""
        wchan, why = attempt(self.read_place)
        self.asleep_in = wchan or ""
        if wchan is None:
            self.why = self.why if why in ENDED else why
        elif wchan != "0":
            self.waits[wchan[:100]] = self.waits.get(wchan[:100], 0) + 1

    def read_place(self) -> str:
        """The kernel function in which it sleeps; "0" if it runs again or the kernel hides it.
        Raises OSError, ValueError."""
        place = self.read_wchan()
        for _ in range(TRIES):
            if place != "0":
                return place
            slept = self.slept()
            place = self.read_wchan()
            if place == "0" and slept is not None and slept == self.slept():
                self.unseen += 1
                return place
        self.missed += place == "0"
        return place

    def read_wchan(self) -> str:
        return read_small(self.folder + "wchan").decode("ascii", "backslashreplace")

    def slept(self) -> "dict[str, int] | None":
        """Its context switches if it is asleep: if they stay the same, so does its sleep."""
        data = read_small(self.folder + "status")
        return parse_switches(data) if ASLEEP.search(data) else None

    def record(self, looks: int) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.ThreadActivity."""
        record = Reading(tid=self.tid, born_s=self.born_s, ended_s=self.ended_s)
        record["states"] = "".join(["-"] * (looks - len(self.states)) + self.states)
        if not self.last:
            record.fail_all(("name", "cpu"), "the thread ended")
        else:
            record["name"], record["cpu"] = self.last["name"], self.last["cpu"]
        fields: "tuple[str, ...]" = COUNTS
        if self.ended_s is not None:  # unknown since the last look
            fields = TICKS if self.sights > 1 or (self.sights and self.born_s is not None) else ()
            record.fail_all([field for field in COUNTS if field not in fields], "the thread ended")
        put_counts(record, fields, self.first, self.last)
        if "D" in self.states:  # others wait for no disk
            put_counts(record, (DELAY,), self.first, self.last)
        missing_ticks = [None if self.born_s is None else 0] * (looks - len(self.ticks))
        ticks = missing_ticks + self.ticks
        readings = [tick for tick in ticks if tick is not None]
        if readings and readings[-1] != readings[0]:
            record["ticks"] = ticks
            if len(set(self.cpus) - {None}) > 1:
                record["cpus"] = [None] * (looks - len(self.cpus)) + self.cpus
                record.fail("cpu", "it changed its CPU")
        record["waits"] = self.waits
        why = self.why_unknown()
        if why and not self.waits:
            record.fail("waits", why)
        return record

    def why_unknown(self) -> "str | None":
        """Why the kernel named no function at too many looks, if so."""
        if self.why or self.unseen >= MOST_UNSHOWN:
            return self.why or NOT_SHOWN
        return MISSED if self.missed > max(1, MOST_MISSED * self.sights) else None


def run_times(root: str, pid: int) -> "dict[int, int]":
    """{tid: nanoseconds that it ran} of every thread of a process: schedstat is the cheapest file
    of a thread. Raises OSError, ValueError."""
    folder = path_under(root, "/proc/{}/task".format(pid)) + "/"
    ran = {}
    for name in names(root, "/proc/{}/task".format(pid)):
        try:
            ran[int(name)] = int(read_small(folder + name + "/schedstat").split(None, 1)[0])
        except (OSError, ValueError, LookupError):
            continue  # it ended
    return ran


def threads_of(
    root: str, pid: int, known_ids: "Container[int]" = (), born_s: "float | None" = None
) -> "list[WatchedThread]":
    """The threads of a process without `known_ids`. Raises OSError, ValueError."""
    task_folder = path_under(root, "/proc/{}/task".format(pid)) + "/"
    tids = [int(name) for name in names(root, "/proc/{}/task".format(pid)) if name.isdigit()]
    return [WatchedThread(task_folder, tid, born_s) for tid in sorted(tids) if tid not in known_ids]
