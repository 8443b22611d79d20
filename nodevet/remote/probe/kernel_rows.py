"""Rows of the kernel log, put together to messages.

A message may have several lines. /dev/kmsg escapes what is between them (\\x0a), systemd's
journal keeps it, and dmesg(1) prints the further lines below the first, moved to the right by
the width of what it prints before (sys-utils/dmesg.c in util-linux; before 2.33 not moved).
Continued lines of printk(KERN_CONT) may be records of their own: `+` after one marked `c` up
to Linux 4.8, themselves marked `c` from then on (Documentation/ABI/testing/dev-kmsg). From then on
one is a record of its own if it is not of the line above, and it may begin with the name of a
control group, which users choose; but the NVIDIA driver marks its lines so, too.
"""

import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

MOST_PIECES = 64  # rows of one message
MOST_NAMED = 8  # rows that are not understood

# priority,sequence,microseconds,flags[,more];text
KMSG = re.compile(
    rb"([0-9]{1,10}),([0-9]{1,20}),([0-9]{1,20}),([^,;]{0,20})[^;]{0,200};(.*)\Z", re.DOTALL
)
VERSION = re.compile(rb"Linux version ([0-9]{1,3})\.([0-9]{1,4})")
MARKED = (4, 9)  # the first Linux that marks a continued line itself
DRIVER = b"NVRM: "
XID = b"NVRM: Xid "
AT_ONCE_S = 1.0  # between what the driver begins and what continues it
# what the kernel prints behind the name of a control group
CPUSET = re.compile(rb",mems_allowed=[0-9,-]{1,512}(?:,global_oom|,oom_memcg=|\Z)")
DICTIONARY = re.compile(rb" [A-Z0-9_]{1,64}=")  # SUBSYSTEM=pci, of the record before
# <4>[   12.345678] text; with -x kern  :warn  : [...; with -T a date, in the words of any language;
# -d <    0.000012>; -H [  +0.000012]; with CONFIG_PRINTK_CALLER [   12.345678][  T123] text; what
# journalctl -k prints, [   12.345678] host kernel: text, and with a date; and syslogd's kern.log,
# Jan 21 04:41:44 host kernel: [   12.345678] text
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
    rb"(?:<[0-7]>)?"  # that a message itself begins with, as those of old modules do
    rb"(.*)\Z"
)
ESCAPES = {byte: "\\x{:02x}".format(byte) for byte in list(range(32)) + [127]}


@lru_cache(maxsize=None)
def plain_row() -> "re.Pattern[bytes]":
    """The pattern of PLAIN. Compiling it takes as long as reading a log that has no such row."""
    return re.compile(PLAIN, re.DOTALL)


def printable(data: bytes) -> str:
    """Bytes as ASCII, what cannot be printed as the kernel itself escapes it.

    >>> printable(b"caf\\xc3\\xa9\\n")
    'caf\\\\xc3\\\\xa9\\\\x0a'
    """
    text = data.decode("ascii", "backslashreplace")
    return text if text.isprintable() else text.translate(ESCAPES)


class Message(object):
    """What began with one row. `pieces`: of each row whether it may begin a message, and its
    text as bytes. `indent`: how far dmesg(1) moves further lines; None in a record."""

    def __init__(
        self, seconds: "float | None", kernel: bool, text: bytes, indent: "int | None" = None
    ) -> None:
        self.seconds = seconds
        self.kernel = kernel
        self.indent = indent
        self.pieces = [(True, text)]

    @property
    def text(self) -> bytes:
        """What its first row says."""
        return self.pieces[0][1]

    def readings(self) -> "Iterator[str]":
        """The texts that its rows may mean, as printable text; one if they are clear."""
        if len(self.pieces) == 1:
            yield printable(self.pieces[0][1].strip())
            return
        between = b"" if self.indent is None else b"\n"
        for index, (begins, _) in enumerate(self.pieces):
            if begins:
                yield printable(between.join(text for _, text in self.pieces[index:]).strip())


class Rows(object):
    """Rows of /dev/kmsg, or of what dmesg(1) prints, taken one after the other.

    `finish(message)` gets each whole message, `count(sequence)` each record's number and
    `lose(why)` what is not understood.
    """

    def __init__(
        self,
        finish: "Callable[[Message], None]",
        count: "Callable[[int], None]",
        lose: "Callable[[str], None]",
    ) -> None:
        self.finish = finish
        self.count = count
        self.lose = lose
        self.message: "Message | None" = None
        self.marked = True  # continued lines: from Linux 4.9 on
        self.form: "str | None" = None  # kmsg or text, by the first row that is understood
        self.number = 0
        self.odd = 0  # rows that are not understood

    def end(self) -> None:
        """No further row belongs to the message at hand."""
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
            self.is_of(text)
        seconds = int(microseconds) / 1e6
        above = self.message if self.message and self.message.kernel is kernel else None
        if above and flag[:1] == b"+":
            self.go_on(above, False, text)
        elif above and flag[:1] == b"c" and self.marked:
            self.continued(above, seconds, kernel, text)
        else:
            self.begin(seconds, kernel, text)

    def is_of(self, text: bytes) -> None:
        """Take the kernel's version from a text that begins with it, as /proc/version does."""
        version = VERSION.match(text)
        if version:
            self.marked = (int(version.group(1)), int(version.group(2))) >= MARKED

    def continued(self, above: "Message", seconds: float, kernel: bool, text: bytes) -> None:
        """A continued line: read if it is the NVIDIA driver's, or of what that began."""
        if CPUSET.search(text):
            return
        driver = text.startswith(DRIVER)
        begun = above.text.startswith(DRIVER) and not above.text.startswith(XID)
        near = above.seconds is not None and seconds <= above.seconds + AT_ONCE_S
        room = len(above.pieces) < MOST_PIECES
        if begun and near and room and not text.startswith(XID):
            self.go_on(above, driver, text)
        elif driver:
            self.begin(seconds, kernel, text)

    def text(self, row: bytes) -> None:
        match = plain_row().match(row)
        if match is None:
            self.lose_row()
            return
        priority, facility, when, own, inner, text = match.groups()
        seconds = own or inner
        prefixed = when is not None and self.form != "kmsg"
        above = self.message if row.startswith((b" ", b"\t")) else None
        moved = plain_row().match(row.lstrip()) if above else None
        strange = moved if moved and moved.group(3) is not None else None  # a whole row, yet moved
        if prefixed:
            self.form = "text"
            kernel = int(priority or b"0") >> 3 == 0 and facility in (None, b"kern")
            self.begin(float(seconds) if seconds else None, kernel, text, len(row) - len(text))
        elif above and self.form == "text" and not strange:
            width = above.indent
            self.go_on(above, False, row[width:] if not row[:width].strip() else row.lstrip())
        else:
            self.lose_row()
            if self.form == "text" and self.message:
                self.go_on(self.message, True, strange.group(6) if strange else text)
            else:
                self.begin(None, int(priority or b"0") >> 3 == 0, text, 0)

    def lose_row(self) -> None:
        """Say that this row is not understood; of many such rows that there are more."""
        self.odd += 1
        if self.odd <= MOST_NAMED:
            self.lose("its row {} is not understood".format(self.number))
        elif self.odd == MOST_NAMED + 1:
            self.lose("nor are further rows")

    def begin(
        self, seconds: "float | None", kernel: bool, text: bytes, indent: "int | None" = None
    ) -> None:
        self.end()
        self.message = Message(seconds, kernel, text, indent)

    def go_on(self, message: "Message", begins: bool, text: bytes) -> None:
        if len(message.pieces) < MOST_PIECES:
            message.pieces.append((begins, text))
        else:
            self.lose("a message has more than {} lines".format(MOST_PIECES))
