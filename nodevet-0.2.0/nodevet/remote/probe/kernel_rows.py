"""Joins rows of the kernel log into messages.

A message may have several lines. /dev/kmsg escapes the newlines (\\x0a), systemd's journal keeps
them, and dmesg(1) indents further lines by the width of the first line's prefix (sys-utils/dmesg.c
in util-linux; not before 2.33). So a row without a time, or an indented one with a time, begins no
message: it may be the name of a user's file. The log is then incomplete. Continued lines of
printk(KERN_CONT) may be separate records: `+` after a record marked `c` up to Linux 4.8, later
marked `c` themselves (Documentation/ABI/testing/dev-kmsg). Such a record may continue no line, and
begin with a cgroup's name, which users choose; but the NVIDIA driver marks its lines so, too.
"""

import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

MOST_PIECES = 64  # rows of one message
MOST_NAMED = 8  # unknown rows

# priority,sequence,microseconds,flags[,more];text
KMSG = re.compile(
    rb"([0-9]{1,10}),([0-9]{1,20}),([0-9]{1,20}),([^,;]{0,20})[^;]{0,200};(.*)\Z", re.DOTALL
)
VERSION = re.compile(rb"Linux version ([0-9]{1,3})\.([0-9]{1,4})")
MARKED = (4, 9)  # the first Linux that marks continued lines
DRIVER = b"NVRM: "
XID = b"NVRM: Xid "
AT_ONCE_S = 1.0  # between a line of the driver and its continuation
# what the kernel prints behind a cgroup's name
CPUSET = re.compile(rb",mems_allowed=[0-9,-]{1,512}(?:,global_oom|,oom_memcg=|\Z)")
DICTIONARY = re.compile(rb" [A-Z0-9_]{1,64}=")  # SUBSYSTEM=pci, of the record before
# dmesg: <4>[   12.345678] text; -x kern  :warn  : [...; -T a date, in any language;
# -d <    0.000012>; -H [  +0.000012]; with CONFIG_PRINTK_CALLER [   12.345678][  T123] text.
# journalctl -k: [   12.345678] host kernel: text, or a date. kern.log: Jan 21 04:41:44 host
# kernel: [   12.345678] text
PLAIN = (
    rb"(?:<([0-9]{1,3})>)?"
    rb"(?:(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]) *:"
    rb"(?:emerg|alert|crit|err|warn|notice|info|debug) *: )?"
    rb"(\[ *([0-9]{1,10}\.[0-9]{1,9})(?: <[^>]{1,20}>)?\](?: ?\[ *[CT][0-9]{1,10}\])? "
    rb"|\[[A-Z][a-z]{2}[ 0-9][^\]]{4,40}\] |\[[^\[\]]{4,60} (?:[0-9]{4}|[0-9]{2}:[0-9]{2})\] "
    rb"|\[ *[+<][^\]]{1,30}\] |[0-9]{4}-\S{5,40} "
    rb"|(?:\S{3,12} [ 0-9][0-9] [0-9:]{8}(?:\.[0-9]{1,9})?"
    rb"|\S{2,12} [0-9]{4}-[0-9-]{5} [0-9:]{8} \S{1,8}|[0-9]{9,11}\.[0-9]{1,9}) "
    rb"(?=[\w.-]{1,64} kernel: ))?"
    rb"(?:(?:[\w.-]{1,64} )?kernel: (?:\[ *([0-9]{1,10}\.[0-9]{1,9})\] )?)?"
    rb"(?:<[0-7]>)?"  # at the start of old modules' messages
    rb"(.*)\Z"
)
ESCAPES = {byte: "\\x{:02x}".format(byte) for byte in list(range(32)) + [127]}


@lru_cache(maxsize=None)
def plain_row() -> "re.Pattern[bytes]":
    """The compiled PLAIN. Compiling takes as long as reading a log without such rows."""
    return re.compile(PLAIN, re.DOTALL)


def printable(data: bytes) -> str:
    """Bytes as ASCII, escaped as the kernel does.

    >>> printable(b"caf\\xc3\\xa9\\n")
    'caf\\\\xc3\\\\xa9\\\\x0a'
    """
    text = data.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.translate(ESCAPES)


class Message(object):
    """A row and those that continue it. `pieces`: (may begin a message, text) of each row.
    `indent`: of dmesg(1)'s further lines; None in a record."""

    def __init__(
        self, seconds: "float | None", kernel: bool, text: bytes, indent: "int | None" = None
    ) -> None:
        self.seconds = seconds
        self.kernel = kernel
        self.indent = indent
        self.pieces = [(True, text)]

    @property
    def text(self) -> bytes:
        """The text of its first row."""
        return self.pieces[0][1]

    def readings(self) -> "Iterator[str]":
        """The texts that its rows may mean; one if they are clear."""
        if len(self.pieces) == 1:
            yield printable(self.pieces[0][1].strip())
            return
        between = b"" if self.indent is None else b"\n"
        for index, (begins, _) in enumerate(self.pieces):
            if begins:
                yield printable(between.join(text for _, text in self.pieces[index:]).strip())


class Rows(object):
    """Takes rows of /dev/kmsg or dmesg(1) in order.

    `finish(message)` gets each whole message, `count(sequence)` each record's number,
    `report(why)` each problem.
    """

    def __init__(
        self,
        finish: "Callable[[Message], None]",
        count: "Callable[[int], None]",
        report: "Callable[[str], None]",
    ) -> None:
        self.finish = finish
        self.count = count
        self.report = report
        self.message: "Message | None" = None
        self.marked = True  # continued lines: from Linux 4.9 on
        self.form: "str | None" = None  # kmsg or text, by the first known row
        self.number = 0
        self.unknown_rows = 0  # so far

    def end(self) -> None:
        """Finish the current message."""
        message, self.message = self.message, None
        if message is not None:
            self.finish(message)

    def take(self, row: bytes) -> None:
        self.number += 1
        match = KMSG.match(row)
        if match:
            self.form = self.form or "kmsg"
            self.record(*match.groups())
        elif self.form == "kmsg" and DICTIONARY.match(row):
            pass
        elif row.strip():
            self.text(row)

    def record(
        self, priority: bytes, sequence: bytes, microseconds: bytes, flag: bytes, text: bytes
    ) -> None:
        kernel = int(priority) >> 3 == 0
        self.count(int(sequence))
        if kernel:
            self.read_version(text)
        seconds = int(microseconds) / 1e6
        previous = self.message if self.message and self.message.kernel is kernel else None
        if previous and flag[:1] == b"+":
            self.append_piece(previous, False, text)
        elif previous and flag[:1] == b"c" and self.marked:
            self.continued_line(previous, seconds, kernel, text)
        else:
            self.begin(seconds, kernel, text)

    def read_version(self, text: bytes) -> None:
        """Read the kernel's version from a text such as /proc/version."""
        version = VERSION.match(text)
        if version:
            self.marked = (int(version.group(1)), int(version.group(2))) >= MARKED

    def continued_line(
        self, previous: "Message", seconds: float, kernel: bool, text: bytes
    ) -> None:
        """Take a continued line if it or its message is the NVIDIA driver's."""
        if CPUSET.search(text):
            return
        is_driver = text.startswith(DRIVER)
        is_driver_message = previous.text.startswith(DRIVER) and not previous.text.startswith(XID)
        is_close = previous.seconds is not None and seconds <= previous.seconds + AT_ONCE_S
        has_room = len(previous.pieces) < MOST_PIECES
        if is_driver_message and is_close and has_room and not text.startswith(XID):
            self.append_piece(previous, is_driver, text)
        elif is_driver:
            self.begin(seconds, kernel, text)

    def text(self, row: bytes) -> None:
        match = plain_row().match(row)
        if match is None:
            self.report_row()
            return
        priority, facility, when, stamp, inner_stamp, text = match.groups()
        seconds = stamp or inner_stamp
        has_prefix = when is not None and self.form != "kmsg"
        previous = self.message if row.startswith((b" ", b"\t")) else None
        indented = plain_row().match(row.lstrip()) if previous else None
        shifted_row = indented is not None and indented.group(3) is not None
        if has_prefix:
            self.form = "text"
            kernel = int(priority or b"0") >> 3 == 0 and facility in (None, b"kern")
            self.begin(float(seconds) if seconds else None, kernel, text, len(row) - len(text))
        elif previous and self.form == "text" and not shifted_row:
            width = previous.indent
            self.append_piece(
                previous, False, row[width:] if not row[:width].strip() else row.lstrip()
            )
        else:
            self.report_row()
            if self.form == "text" and self.message:
                self.append_piece(self.message, False, row.strip())
            else:
                self.begin(None, int(priority or b"0") >> 3 == 0, text, 0)

    def report_row(self) -> None:
        """Report an unknown row; of many rows only the first."""
        self.unknown_rows += 1
        if self.unknown_rows <= MOST_NAMED:
            self.report("its row {} is not understood".format(self.number))
        elif self.unknown_rows == MOST_NAMED + 1:
            self.report("nor are further rows")

    def begin(
        self, seconds: "float | None", kernel: bool, text: bytes, indent: "int | None" = None
    ) -> None:
        self.end()
        self.message = Message(seconds, kernel, text, indent)

    def append_piece(self, message: "Message", begins: bool, text: bytes) -> None:
        if len(message.pieces) < MOST_PIECES:
            message.pieces.append((begins, text))
        else:
            self.report("a message has more than {} lines".format(MOST_PIECES))
