"""The available kernel log since boot, and its events.

/dev/kmsg (Documentation/ABI/testing/dev-kmsg in the kernel tree) holds the latest records. If this
user may not read it, or its beginning is gone, journalctl(1) supplies systemd's journal. Only the
kernel's own messages count: facility 0.

A crashing kernel leaves records in /sys/fs/pstore (Documentation/admin-guide/pstore-blk.rst,
fs/pstore/platform.c); systemd-pstore(8) moves them to /var/lib/systemd/pstore.

Under another root it reads dev/kmsg, a plain file of records or of dmesg(1)'s output, or else
var/log/dmesg. Times are seconds after boot, of the kernel's clock. Prefer records: dmesg before
util-linux 2.33 writes the newline of a file's name as it is, and what follows looks like a row.
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
    is_this_machine,
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
OVERLAP_S = 1.0  # of both sources; records of several CPUs may be out of order
FIRST_ROWS = 10  # some kernels print a line or two before their name
NAME = re.compile(r"Linux version [0-9]{1,3}\.[0-9]")  # more of it than a process can be called
PSTORE = "/sys/fs/pstore"
ARCHIVE = "/var/lib/systemd/pstore"
MOST_RECORDS = 1024  # entries of one of them
CRASHES = 64  # the latest
CRASH_REASON = re.compile(r"([A-Z][a-z]{1,15})#[0-9]{1,6} Part[0-9]")  # Panic#1 Part1
PIDS = 1 << 20  # entries in /proc
JOURNALCTL = ("/usr/bin/journalctl", "/bin/journalctl", "/run/current-system/sw/bin/journalctl")
# with root as its real user: others may use the name, also for a program that is setuid root
JOURNALD = re.compile(r"Name:\tsystemd-journal\n(?:.*\n)*?Uid:\t0\t")
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
    """One source's log. `missing_start`: why its beginning is missing; `losses`: other gaps."""

    def __init__(self, source: str, events: "Events") -> None:
        self.source = source
        self.events = events
        self.rows = 0
        self.first_s: "float | None" = None
        self.last_s: "float | None" = None
        self.sequence: "int | None" = None
        self.missing_start = "it does not begin with the kernel's first lines"
        self.losses: "list[str]" = []
        self.first_messages: "set[tuple[float | None, str]]" = set()  # of the first second
        self.reader = events.reader()
        self.parts = Rows(self.take_message, self.count, self.report)

    def report(self, why: str) -> None:
        if why not in self.losses:
            self.losses.append(why)

    def take(
        self,
        seconds: "float | None",
        kernel: bool,
        text: str,
        *readings: str,
        other_messages: "Container[tuple[float | None, str]]" = frozenset(),
    ) -> None:
        """Take a message; `kernel`: the kernel wrote it; `readings`: other texts that its rows may
        mean; `other_messages`: those of another log."""
        if kernel and NAME.match(text) and self.is_back_at(seconds):
            self.restart()
        self.rows += 1
        if seconds is not None:
            if self.first_s is None:
                self.first_s = seconds
            self.last_s = seconds if self.last_s is None else max(seconds, self.last_s)
        if not kernel or (seconds, text) in other_messages:
            return
        if self.rows <= FIRST_ROWS and NAME.match(text):
            self.missing_start = ""
        if self.is_early(seconds):
            self.first_messages.add((seconds, text))
        self.reader.add(seconds, text, *readings)

    def is_early(self, seconds: "float | None") -> bool:
        """Whether a message is in the first second of this log."""
        if seconds is None or self.first_s is None:
            return False
        return seconds <= self.first_s + OVERLAP_S

    def is_back_at(self, seconds: "float | None") -> bool:
        """Whether a new boot began, in a file with several."""
        if seconds is None or self.last_s is None:
            return False
        return seconds + OVERLAP_S < self.last_s

    def restart(self) -> None:
        """Forget the messages of an earlier boot."""
        self.reader.end()
        self.events.clear()
        self.reader = self.events.reader()
        self.rows, self.first_s, self.last_s, self.losses, self.first_messages = (
            0,
            None,
            None,
            [],
            set(),
        )

    def take_row(self, row: bytes) -> None:
        """Take a row of /dev/kmsg or dmesg(1)."""
        self.parts.take(row)

    def end(self) -> None:
        """End the log."""
        self.parts.end()
        self.reader.end()

    def take_message(self, message: "Message") -> None:
        """Take a message of one row or more."""
        self.take(message.seconds, message.kernel, *message.readings())

    def count(self, sequence: int) -> None:
        """Check by its number that no record is missing."""
        if self.sequence is None:
            self.missing_start = (
                "its first {} records are gone".format(sequence) if sequence else ""
            )
        elif sequence > self.sequence + 1:
            self.report("records were overwritten while they were read")
        self.sequence = sequence


def rows_of(receive: "Callable[[], bytes]", log: "Log") -> "Iterator[bytes]":
    """The complete rows of a source. `receive`: like os.read."""
    partial, size, too_long = b"", 0, False
    while size < LIMIT:
        try:
            chunk = receive()
        except BlockingIOError:
            break
        except BrokenPipeError:  # overrun: the next read goes on with the oldest record left
            log.report("records were overwritten while they were read")
            size += CHUNK
            continue
        if not chunk:
            break
        size += len(chunk)
        rows = (partial + chunk).split(b"\n")
        partial = rows.pop()
        if too_long and rows:  # the rest of it
            del rows[0]
            too_long = False
        if len(partial) > ROW:
            log.report("a row is longer than {} KiB".format(ROW >> 10))
            partial, too_long = b"", True
        for row in rows:
            yield row
    else:
        log.report("it is longer than {} MiB".format(LIMIT >> 20))
    if partial and not too_long:
        log.report("its last row is truncated")
        yield partial


def read_rows(file: int, log: "Log") -> None:
    """Take all rows of an open file. Raises OSError."""
    for row in rows_of(lambda: os.read(file, CHUNK), log):
        log.take_row(row)
    log.end()


def read_kmsg(root: str, events: "Events") -> "Log":
    """The log of /dev/kmsg. Raises OSError."""
    log = Log("kmsg", events)
    version, _ = attempt(read_bytes, root, "/proc/version", 100)
    log.parts.read_version(version or b"")
    file = os.open(path_under(root, "/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        read_rows(file, log)
    finally:
        os.close(file)
    return log


def take_entry(
    log: "Log",
    row: bytes,
    other_messages: "Container[tuple[float | None, str]]",
    end: "float | None",
) -> bool:
    """Take a JSON entry of the journal; False if it is later than `end`."""
    try:
        entry = json.loads(row.decode("utf-8", "replace"))
        transport = entry["_TRANSPORT"]
        if transport not in ("kernel", "driver"):
            return True
        message = entry["MESSAGE"]
        stamp = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry["__MONOTONIC_TIMESTAMP"]
        seconds = integer(stamp) / 1e6
        data = bytes(message) if isinstance(message, list) else message.encode("utf-8", "replace")
        kernel = transport == "kernel" and integer(entry["SYSLOG_FACILITY"]) == 0
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        log.report("an entry of the journal cannot be read")
        return True
    if transport == "driver":
        log.report("journald says that it missed messages")
    elif transport == "kernel":
        log.take(
            seconds,
            kernel,
            printable(data.strip().replace(b"\\", b"\\x5c")),
            other_messages=other_messages,
        )
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
    other_messages: "Container[tuple[float | None, str]]" = frozenset(),
    end: "float | None" = None,
) -> "Log":
    """The journal of this boot, up to `end` seconds after boot. Raises OSError."""
    log = Log("journal", events)
    journalctl = start((find_journalctl(),) + ARGUMENTS, stderr=False)
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(journalctl.stdout, select.POLLIN)

    def receive() -> bytes:
        if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return os.read(journalctl.stdout, ROW)
        log.report("journalctl took longer than {:g} s".format(seconds))
        return b""

    is_complete = False
    try:
        for row in rows_of(receive, log):
            if row and not take_entry(log, row, other_messages, end):
                break
        else:
            is_complete = not log.losses
        if is_complete:
            journalctl.ended(0)
    finally:
        journalctl.end()
    if is_complete and journalctl.code:
        log.report("journalctl ended with exit code {}".format(journalctl.code))
    log.end()
    return log


def journald_runs() -> bool:
    """Whether root runs journald, which writes the journal."""
    for name in names("/", "/proc", PIDS):
        if name.isdigit():
            try:
                if JOURNALD.match(read("/", "/proc/{}/status".format(name))):
                    return True
            except (OSError, ValueError):
                continue
    return False


def section_of(log: "Log", why: str = "", now: "float | None" = None) -> "Reading":
    """The section of a log. `now`: seconds since boot, by default its last line's."""
    log.end()
    gaps = [text for text in log.losses + [why] if text]
    if log.events.dropped:
        gaps.append("there are more than {} different events".format(len(log.events.events)))
    losses = [text for text in [log.missing_start] + gaps if text]
    section = Reading(
        source=log.source,
        complete=not losses,
        since_s=log.first_s,
        lines_read=log.rows,
        dropped=log.events.dropped,
        unmatched=log.events.unmatched,
        events=log.events.records(),
    )
    section.take("links", log.reader.links.records, not log.missing_start)
    if losses:
        section["errors"]["complete"] = "{}: {}".format(log.source, "; ".join(losses))
    if log.first_s is None:
        section.fail("since_s", "no line has a time")
    if gaps or log.first_s is None or log.last_s is None:
        section.fail("covered_s", "; ".join(gaps) or "no line has a time")
    else:
        section["covered_s"] = max(log.last_s, now or 0.0) - log.first_s
    return section


def since_boot() -> "float | None":
    """Seconds since boot, or None."""
    value, _ = attempt(parsed, "/", "/proc/uptime", parse_uptime)
    return value


def with_beginning(kmsg: "Log", seconds: float) -> "Log":
    """/dev/kmsg and the journal's earlier part, as one log."""
    kmsg.end()
    if kmsg.first_s is None:
        return kmsg
    end = kmsg.first_s + OVERLAP_S
    try:
        journal = read_journal(kmsg.events, seconds, kmsg.first_messages, end)
    except OSError as error:
        kmsg.missing_start += ", and the journal: " + reason(error)
        return kmsg
    has_overlap = journal.last_s is not None and journal.last_s >= kmsg.first_s
    if journal.losses or not has_overlap:
        losses = (
            [journal.missing_start]
            + journal.losses
            + ["" if has_overlap else "it ends before kmsg begins"]
        )
        kmsg.missing_start += ", and the journal: " + "; ".join(text for text in losses if text)
        return kmsg
    if journal.missing_start:
        kmsg.missing_start += ", and the journal: " + journal.missing_start
    else:
        kmsg.missing_start = ""
    kmsg.source = "kmsg and journal"
    kmsg.reader.links = journal.reader.links.merge(kmsg.reader.links)
    kmsg.first_s, kmsg.rows = journal.first_s, kmsg.rows + journal.rows
    return kmsg


def read_files(root: str) -> "Reading":
    """The section of a captured tree, or of this machine if a container has it mounted."""
    try:
        log = read_kmsg(root, Events())
        return section_of(log)
    except (FileNotFoundError, NotADirectoryError):
        log = Log("dmesg", Events())
    try:
        file = os.open(path_under(root, "/var/log/dmesg"), os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        if is_this_machine(root):  # whose log is elsewhere
            raise SectionError("{}/dev/kmsg does not exist: mount this machine's /dev".format(root))
        raise Absent("these files hold no kernel log")
    try:
        read_rows(file, log)
    finally:
        os.close(file)
    return section_of(log, "/var/log/dmesg is written at boot only")


def crash_records(root: str) -> "list[Reading]":
    """{path, at_s: seconds since 1970, reason} of the latest crashes. Raises OSError."""
    files = []
    for folder, prefix in ((PSTORE, "dmesg-"), (ARCHIVE, "")):
        try:
            entries = names(root, folder, MOST_RECORDS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in entries:
            path = "{}/{}".format(folder, name)
            if name.startswith(prefix):
                files.append((os.stat(path_under(root, path)).st_mtime, path))
    newest = sorted(files, reverse=True)[:CRASHES]
    return [Reading(path=path, at_s=at, reason=crash_reason(root, path)) for at, path in newest]


def crash_reason(root: str, path: str) -> "str | None":
    """Why a record was written: Panic, Oops, Shutdown, ..., or None."""
    try:
        match = CRASH_REASON.match(read_bytes(root, path, 64).decode("ascii", "replace"))
    except (OSError, ValueError):
        return None
    return match.group(1) if match else None


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    section = read_log(root, request)
    section.take("crashes", crash_records, root)
    return section


def read_log(root: str, request: "dict[str, Any]") -> "Reading":
    if root != "/":
        return read_files(root)
    seconds = min(JOURNAL_SECONDS, request.get("deadline", 2 * JOURNAL_SECONDS) / 2.0)
    try:
        kmsg = read_kmsg(root, Events())
    except OSError as error:
        kmsg_error = error
    else:
        if kmsg.first_s is not None:
            log = with_beginning(kmsg, seconds) if kmsg.missing_start else kmsg
            return section_of(log, now=since_boot())
        kmsg_error = OSError("it is empty")
    try:
        journal = read_journal(Events(), seconds)
        why = "; ".join(journal.losses) or "no kernel messages"
    except OSError as error:
        journal, why = None, reason(error)
    if journal is not None and journal.rows:
        why = "" if journald_runs() else "journald is not running"
        return section_of(journal, why, since_boot())
    message = "/dev/kmsg: {}; journal: {}".format(reason(kmsg_error), why)
    if isinstance(kmsg_error, PermissionError):
        raise Denied("{} ({})".format(NOT_ROOT if os.geteuid() else NO_CAPABILITY, message))
    raise SectionError(message)
