"""The kernel log since boot, as far as it can be had, and the events in it.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg in the kernel tree) holds the latest records,
as many as fit. Where it may not be read, or its beginning is gone, systemd's journal is
asked too, by journalctl(1). Only what the kernel itself wrote counts: facility 0.

What a kernel left behind when it crashed is in /sys/fs/pstore (Documentation/admin-guide/pstore-
blk.rst, fs/pstore/platform.c), from where systemd-pstore(8) moves it to /var/lib/systemd/pstore.

Under another root it is that root's dev/kmsg, a plain file of its records or of dmesg(1)'s
output, or else var/log/dmesg. Times are seconds after boot, of the kernel's own clock.
"""

import json
import os
import re
import select
import time

from nodevet.remote.probe.collectors.host import parse_uptime
from nodevet.remote.probe.files import (
    Absent,
    Denied,
    Reading,
    SectionError,
    attempt,
    integer,
    names,
    parsed,
    path_under,
    read,
    read_bytes,
    reason,
)
from nodevet.remote.probe.kernel_events import Events
from nodevet.remote.probe.kernel_rows import Rows, printable
from nodevet.remote.program import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Container, Iterator

    from nodevet.remote.probe.kernel_rows import Message

ALONE = True  # tens of thousands of rows, and a program
LIMIT = 64 << 20  # bytes of one source
NOT_ROOT = "only root may read the kernel log here: run nodevet as root, or with --sudo"
NO_CAPABILITY = "root may not read the kernel log here, as in a container without CAP_SYSLOG"
CHUNK = 8192  # bytes; /dev/kmsg refuses a read that its record does not fit in
ROW = 1 << 16  # bytes of a row
JOURNAL_SECONDS = 10
OVERLAP_S = 1.0  # of both sources; records of several CPUs are not quite in order
FIRST_ROWS = 10  # some kernels print a line or two before their name
NAME = re.compile(r"Linux version [0-9]{1,3}\.[0-9]")  # more of it than a process can be called
PSTORE = "/sys/fs/pstore"
ARCHIVE = "/var/lib/systemd/pstore"
RECORDS = 1024  # entries of one of them
CRASHES = 64  # that are told of, the latest
CRASH_REASON = re.compile(r"([A-Z][a-z]{1,15})#[0-9]{1,6} Part[0-9]")  # Panic#1 Part1
PIDS = 1 << 20  # entries in /proc
JOURNALCTL = ("/usr/bin/journalctl", "/bin/journalctl", "/run/current-system/sw/bin/journalctl")
MISSED = "MESSAGE_ID=e9bf28e6e834481bb6f48f548ad13606"  # SD_MESSAGE_JOURNAL_MISSED, sd-messages.h
ARGUMENTS = (
    "--boot",
    "--output=json",
    "--output-fields=MESSAGE,_TRANSPORT,_SOURCE_MONOTONIC_TIMESTAMP,SYSLOG_FACILITY",
    "--no-pager",
    "--quiet",
    "_TRANSPORT=kernel",
    "+",
    MISSED,
    "_TRANSPORT=driver",  # journald itself, and not whoever writes to it
)


class Log(object):
    """What one source tells. `gone` says why its beginning is missing, `lost` what else is."""

    def __init__(self, source: str, events: "Events") -> None:
        self.source = source
        self.events = events
        self.rows = 0
        self.first_s: "float | None" = None
        self.last_s: "float | None" = None
        self.sequence: "int | None" = None
        self.gone = "it does not begin with the kernel's first lines"
        self.lost: "list[str]" = []
        self.early: "set[tuple[float | None, str]]" = set()  # what it said in its first moments
        self.reader = events.reader()
        self.parts = Rows(self.take_message, self.count, self.lose)

    def lose(self, why: str) -> None:
        if why not in self.lost:
            self.lost.append(why)

    def take(
        self,
        seconds: "float | None",
        kernel: bool,
        text: str,
        *readings: str,
        other: "Container[tuple[float | None, str]]" = frozenset(),
    ) -> None:
        """One message; `kernel`: whether the kernel wrote it. `readings`: what else its rows may
        mean, if that is not clear. `other`: what another log has."""
        if kernel and NAME.match(text) and self.is_back_at(seconds):
            self.forget()
        self.rows += 1
        if seconds is not None:
            if self.first_s is None:
                self.first_s = seconds
            self.last_s = seconds if self.last_s is None else max(seconds, self.last_s)
        if not kernel or (seconds, text) in other:
            return
        if self.rows <= FIRST_ROWS and NAME.match(text):
            self.gone = ""
        if self.is_early(seconds):
            self.early.add((seconds, text))
        self.reader.add(seconds, text, *readings)

    def is_early(self, seconds: "float | None") -> bool:
        """Whether a message is of the first moments of this log."""
        if seconds is None or self.first_s is None:
            return False
        return seconds <= self.first_s + OVERLAP_S

    def is_back_at(self, seconds: "float | None") -> bool:
        """Whether time began again, as it does with each boot in a file that holds several."""
        if seconds is None or self.last_s is None:
            return False
        return seconds + OVERLAP_S < self.last_s

    def forget(self) -> None:
        """What was before is of another boot."""
        self.reader.end()
        self.events.clear()
        self.reader = self.events.reader()
        self.rows, self.first_s, self.last_s, self.lost, self.early = 0, None, None, [], set()

    def take_row(self, row: bytes) -> None:
        """One row of /dev/kmsg, or of what dmesg(1) prints; `end` after the last."""
        self.parts.take(row)

    def end(self) -> None:
        """There is no further row."""
        self.parts.end()
        self.reader.end()

    def take_message(self, message: "Message") -> None:
        """A message of one row or more."""
        self.take(message.seconds, message.kernel, *message.readings())

    def count(self, sequence: int) -> None:
        """See to it that no record is missing, by their numbers."""
        if self.sequence is None:
            self.gone = "its first {} records are gone".format(sequence) if sequence else ""
        elif sequence > self.sequence + 1:
            self.lose("records were overwritten while they were read")
        self.sequence = sequence


def rows_of(receive: "Callable[[], bytes]", log: "Log") -> "Iterator[bytes]":
    """The whole rows of a source, as bytes, until it has no more. `receive`: like os.read."""
    rest, size, too_long = b"", 0, False
    while size < LIMIT:
        try:
            chunk = receive()
        except BlockingIOError:
            break
        except BrokenPipeError:  # overrun: the next read goes on with the oldest record left
            log.lose("records were overwritten while they were read")
            size += CHUNK
            continue
        if not chunk:
            break
        size += len(chunk)
        rows = (rest + chunk).split(b"\n")
        rest = rows.pop()
        if too_long and rows:  # what is left of it
            del rows[0]
            too_long = False
        if len(rest) > ROW:
            log.lose("a row is longer than {} KiB".format(ROW >> 10))
            rest, too_long = b"", True
        for row in rows:
            yield row
    else:
        log.lose("it is longer than {} MiB".format(LIMIT >> 20))
    if rest and not too_long:
        log.lose("its last row is truncated")
        yield rest


def read_rows(file: int, log: "Log") -> None:
    """All rows of an open file. Raises OSError."""
    for row in rows_of(lambda: os.read(file, CHUNK), log):
        log.take_row(row)
    log.end()


def read_kmsg(root: str, events: "Events") -> "Log":
    """/dev/kmsg. Raises OSError."""
    log = Log("kmsg", events)
    version, _ = attempt(read_bytes, root, "/proc/version", 100)
    log.parts.is_of(version or b"")
    file = os.open(path_under(root, "/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        read_rows(file, log)
    finally:
        os.close(file)
    return log


def take_entry(
    log: "Log", row: bytes, other: "Container[tuple[float | None, str]]", end: "float | None"
) -> bool:
    """One entry of the journal, as JSON; False once it is later than `end`."""
    try:
        entry = json.loads(row.decode("utf-8", "replace"))
        transport = entry["_TRANSPORT"]
        if transport not in ("kernel", "driver"):
            return True
        message = entry["MESSAGE"]
        moment = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"]
        seconds = integer(moment) / 1e6
        data = bytes(message) if isinstance(message, list) else message.encode("utf-8", "replace")
        kernel = transport == "kernel" and integer(entry["SYSLOG_FACILITY"]) == 0
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        log.lose("an entry of the journal cannot be read")
        return True
    if transport == "driver":
        log.lose("journald says that it missed messages")
    elif transport == "kernel":
        log.take(seconds, kernel, printable(data.strip().replace(b"\\", b"\\x5c")), other=other)
        return end is None or seconds <= end
    return True


def find_journalctl() -> str:
    """The path of journalctl. Raises FileNotFoundError."""
    for path in JOURNALCTL:
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(2, "no journalctl", "journalctl")


def read_journal(
    events: "Events",
    seconds: float,
    other: "Container[tuple[float | None, str]]" = frozenset(),
    end: "float | None" = None,
) -> "Log":
    """The journal of this boot, up to `end` seconds after it. Raises OSError."""
    log = Log("journal", events)
    journalctl = start((find_journalctl(),) + ARGUMENTS, stderr=False)
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(journalctl.stdout, select.POLLIN)

    def receive() -> bytes:
        if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return os.read(journalctl.stdout, ROW)
        log.lose("journalctl took longer than {:g} s".format(seconds))
        return b""

    ended = False
    try:
        for row in rows_of(receive, log):
            if row and not take_entry(log, row, other, end):
                break
        else:
            ended = not log.lost
        if ended:
            journalctl.ended(0)
    finally:
        journalctl.end()
    if ended and journalctl.code:
        log.lose("journalctl ended with exit code {}".format(journalctl.code))
    log.end()
    return log


def journald_runs() -> bool:
    """Whether the journal is still being written, by the process of root that does it."""
    for name in names("/", "/proc", PIDS):
        if name.isdigit():
            try:
                ours = os.stat("/proc/" + name).st_uid == 0  # anybody may take the name
                if ours and read("/", "/proc/{}/comm".format(name)).strip() == "systemd-journal":
                    return True
            except (OSError, ValueError):
                continue
    return False


def whole(log: "Log", why: str = "", now: "float | None" = None) -> "Reading":
    """A log on its own, as evidence. `now`: seconds since boot; without it its last line's."""
    log.end()
    gaps = [text for text in log.lost + [why] if text]
    if log.events.dropped:
        gaps.append("there are more than {} different events".format(len(log.events.found)))
    lost = [text for text in [log.gone] + gaps if text]
    found = Reading(
        source=log.source,
        complete=not lost,
        since_s=log.first_s,
        lines_read=log.rows,
        dropped=log.events.dropped,
        unmatched=log.events.unmatched,
        events=log.events.records(),
    )
    found.take("links", log.reader.links.records, not log.gone)
    if lost:
        found["errors"]["complete"] = "{}: {}".format(log.source, "; ".join(lost))
    if log.first_s is None:
        found.fail("since_s", "no line has a time")
    if gaps or log.first_s is None or log.last_s is None:
        found.fail("covered_s", "; ".join(gaps) or "no line has a time")
    else:
        found["covered_s"] = max(log.last_s, now or 0.0) - log.first_s
    return found


def since_boot() -> "float | None":
    """Seconds since boot, or None."""
    value, _ = attempt(parsed, "/", "/proc/uptime", parse_uptime)
    return value


def with_beginning(kmsg: "Log", seconds: float) -> "Log":
    """/dev/kmsg with what the journal has from before it, as one log."""
    kmsg.end()
    if kmsg.first_s is None:
        return kmsg
    end = kmsg.first_s + OVERLAP_S
    try:
        journal = read_journal(kmsg.events, seconds, kmsg.early, end)
    except OSError as error:
        kmsg.gone += ", and the journal: " + reason(error)
        return kmsg
    reached = journal.last_s is not None and journal.last_s >= kmsg.first_s
    if journal.lost or not reached:
        lost = [journal.gone] + journal.lost + ["" if reached else "it ends before kmsg begins"]
        kmsg.gone += ", and the journal: " + "; ".join(text for text in lost if text)
        return kmsg
    if journal.gone:
        kmsg.gone += ", and the journal: " + journal.gone
    else:
        kmsg.gone = ""
    kmsg.source = "kmsg and journal"
    kmsg.reader.links = journal.reader.links.followed_by(kmsg.reader.links)
    kmsg.first_s, kmsg.rows = journal.first_s, kmsg.rows + journal.rows
    return kmsg


def from_files(root: str) -> "Reading":
    """The log of a captured tree."""
    try:
        log = read_kmsg(root, Events())
        return whole(log)
    except (FileNotFoundError, NotADirectoryError):
        log = Log("dmesg", Events())
    try:
        file = os.open(path_under(root, "/var/log/dmesg"), os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise Absent("these files hold no kernel log")
    try:
        read_rows(file, log)
    finally:
        os.close(file)
    return whole(log, "/var/log/dmesg is written at boot only")


def crash_records(root: str) -> "list[Reading]":
    """(path, when it was written in seconds since 1970, why) of the latest. Raises OSError."""
    found = []
    for folder, prefix in ((PSTORE, "dmesg-"), (ARCHIVE, "")):
        try:
            listed = names(root, folder, RECORDS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in listed:
            path = "{}/{}".format(folder, name)
            if name.startswith(prefix):
                found.append((os.stat(path_under(root, path)).st_mtime, path))
    latest = sorted(found, reverse=True)[:CRASHES]
    return [Reading(path=path, at_s=at, reason=crash_reason(root, path)) for at, path in latest]


def crash_reason(root: str, path: str) -> "str | None":
    """Why a record was written: Panic, Oops, Shutdown and others; None if it does not say."""
    try:
        match = CRASH_REASON.match(read_bytes(root, path, 64).decode("ascii", "replace"))
    except (OSError, ValueError):
        return None
    return match.group(1) if match else None


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    found = read_log(root, request)
    found.take("crashes", crash_records, root)
    return found


def read_log(root: str, request: "dict[str, Any]") -> "Reading":
    if root != "/":
        return from_files(root)
    seconds = min(JOURNAL_SECONDS, request.get("deadline", 2 * JOURNAL_SECONDS) / 2.0)
    try:
        kmsg = read_kmsg(root, Events())
    except OSError as error:
        denied = error
    else:
        if kmsg.first_s is not None:
            log = with_beginning(kmsg, seconds) if kmsg.gone else kmsg
            return whole(log, now=since_boot())
        denied = OSError("it is empty")
    try:
        journal = read_journal(Events(), seconds)
        why = "; ".join(journal.lost) or "no kernel messages"
    except OSError as error:
        journal, why = None, reason(error)
    if journal is not None and journal.rows:
        why = "" if journald_runs() else "journald is not running"
        return whole(journal, why, since_boot())
    both = "/dev/kmsg: {}; journal: {}".format(reason(denied), why)
    if isinstance(denied, PermissionError):
        raise Denied("{} ({})".format(NOT_ROOT if os.geteuid() else NO_CAPABILITY, both))
    raise SectionError(both)
