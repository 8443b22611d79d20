"""Asks NCCL's RAS port once, and keeps what matters of the answer.

src/ras in NVIDIA/nccl: lines that end with a newline; CLIENT PROTOCOL, TIMEOUT and SET FORMAT get
a line each, and VERBOSE STATUS one JSON document, after which NCCL closes the connection. The
answer is text of the job's user, so every value is checked and bounded.
"""

import json
import re
import time

from nodevet.remote.probe.connections import in_namespace
from nodevet.remote.probe.cpu_limit import within
from nodevet.remote.probe.files import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from nodevet.remote.probe.nccl_listener import Listener

LEG_S = 5  # that NCCL waits for its ranks, once on the way there and once back
ANSWER_S = 13.0  # for all of it
PARSE_S = 2.0  # of CPU time
LARGEST = 16 << 20  # bytes of an answer
LONGEST = 256  # bytes of a line
CHUNK = 1 << 16
RANKS = 8192  # of all communicators together, each of which counts as one more
KEPT = 2 << 20  # bytes that are kept of an answer; a rank takes 0.2 kB
KINDS = 16
TEXT = 128  # characters
LARGEST_NUMBER = 1 << 63
DIALOG = (
    ("CLIENT PROTOCOL 2", re.compile(rb"SERVER PROTOCOL ([2-9]|[0-9]{2})\Z")),
    ("TIMEOUT {}".format(LEG_S), re.compile(rb"OK\Z")),
    ("SET FORMAT json", re.compile(rb"OK\Z")),
)
# before NCCL 2.30.7 there is no comma here
NO_COMMA = re.compile(r'([0-9])([ \t\r\n]{1,80}"status")')
SLOW = "no whole answer within {:g} s".format(ANSWER_S)


class RasChannel(object):
    """A connection to the port, with an end to the time."""

    def __init__(self, channel: "socket.socket", end: float) -> None:
        self.channel = channel
        self.end = end
        self.received = b""

    def allow(self) -> None:
        """Give the next call the time that is left. Raises ValueError if there is none."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise ValueError(SLOW)
        self.channel.settimeout(left)

    def send(self, line: str) -> None:
        self.allow()
        self.channel.sendall(line.encode("ascii") + b"\n")

    def read(self) -> bytes:
        self.allow()
        return self.channel.recv(CHUNK)

    def line(self) -> bytes:
        """The next line. Raises OSError, ValueError."""
        while b"\n" not in self.received:
            chunk = self.read()
            self.received += chunk
            if not chunk or len(self.received) > LONGEST:
                raise ValueError("it does not speak the protocol of NCCL's RAS")
        line, _, self.received = self.received.partition(b"\n")
        return line.strip()

    def rest(self) -> bytes:
        """Everything until the other side closes. Raises OSError, ValueError."""
        data, chunk = bytearray(self.received), b"-"
        while chunk:
            chunk = self.read()
            data += chunk
            if len(data) > LARGEST:
                raise ValueError("the answer is longer than {} MiB".format(LARGEST >> 20))
        return bytes(data)


def ask(listener: "Listener") -> "Reading":
    """The JSON form of nodevet.evidence.nccl_ras.RasAnswer, without its time. Raises OSError,
    ValueError."""
    import socket

    end = time.monotonic() + ANSWER_S

    def connect() -> "socket.socket":
        return socket.create_connection((listener.host, listener.port), ANSWER_S)

    try:
        with in_namespace(listener.namespace, connect) if listener.namespace else connect() as each:
            channel = RasChannel(each, end)
            for line, expected in DIALOG:
                channel.send(line)
                if not expected.match(channel.line()):
                    raise ValueError("it does not answer {} as NCCL does".format(line))
            channel.send("VERBOSE STATUS")
            data = channel.rest()
    except socket.timeout:
        raise ValueError(SLOW)
    return within(PARSE_S, "reading the answer took too long", report, data)


def report(data: bytes) -> "Reading":
    """What matters of a report. Raises ValueError."""
    text = NO_COMMA.sub(r"\1,\2", data.decode("utf-8", "replace"))
    try:
        value = json.loads(text, parse_int=whole_number)
    except RecursionError:
        raise ValueError("the answer is nested too deeply")
    except ValueError:
        raise ValueError("the answer is not JSON")
    rows = listed(value, "communicators")
    kept, left = [], RANKS
    for row in sorted(rows, key=lambda row: -number(row, "size")):
        left -= 1 + len(listed(row, "ranks")) + len(listed(row, "missing_ranks", ()))
        if left < 0:
            break
        kept.append(communicator(row))
    refuse_twins(kept, "hash")
    if len(json.dumps(kept)) > KEPT:
        raise ValueError("the answer has too much to keep")
    ras = value.get("ras")
    return Reading(
        nccl=text_of(value, "nccl_version"),
        timeouts=number(ras if isinstance(ras, dict) else {}, "timeouts_count", 0),
        left_out=len(rows) - len(kept),
        communicators=kept,
    )


def whole_number(text: str) -> int:
    """An integer; a long one would take long. Raises ValueError."""
    if len(text) > 20:
        raise ValueError("a number is too large")
    return int(text)


def communicator(row: "dict[str, Any]") -> "Reading":
    """The JSON form of nodevet.evidence.nccl_ras.RasCommunicator. Raises ValueError."""
    ranks = [
        Reading(launched=launched(each.get("collective_counts")), **place(each))
        for each in listed(row, "ranks")
    ]
    missing = [missing_rank(each) for each in listed(row, "missing_ranks", ())]
    refuse_twins(ranks + missing, "rank")
    return Reading(
        hash="{}:{}".format(text_of(row, "hash"), text_of(row, "secondary_hash")),
        size=number(row, "size"),
        ranks=ranks,
        missing=missing,
    )


def missing_rank(row: "dict[str, Any]") -> "Reading":
    status = row.get("status")
    status = status if isinstance(status, dict) else row
    flags = {key: status.get(key) is True for key in ("unresponsive", "considered_dead")}
    return Reading(**dict(place(row), **flags))


def place(row: "dict[str, Any]") -> "dict[str, Any]":
    return {
        "rank": number(row, "rank"),
        "host": text_of(row, "host"),
        "pid": number(row, "pid"),
    }


def launched(counts: "Any") -> "dict[str, int]":
    """{collective: how often a rank launched it}. Raises ValueError."""
    if not isinstance(counts, dict) or len(counts) > KINDS:
        raise ValueError("the answer has no valid collective_counts")
    found = {kind[:TEXT]: number(counts, kind) for kind in counts}
    return {kind: count for kind, count in found.items() if count}


def listed(row: "Any", key: str, default: "Any" = None) -> "list[dict[str, Any]]":
    """The objects of a list. Raises ValueError."""
    rows = row.get(key, default) if isinstance(row, dict) else None
    if not isinstance(rows, (list, tuple)) or not all(isinstance(each, dict) for each in rows):
        raise ValueError("the answer has no valid {}".format(key))
    return list(rows)


def number(row: "dict[str, Any]", key: str, default: "int | None" = None) -> int:
    """A count. Raises ValueError."""
    value = row.get(key, default)
    if type(value) is not int or not 0 <= value < LARGEST_NUMBER:
        raise ValueError("the answer has no valid {}".format(key[:TEXT]))
    return value


def text_of(row: "dict[str, Any]", key: str) -> str:
    """A text, which is cut. Raises ValueError."""
    value = row.get(key)
    if not isinstance(value, str):
        raise ValueError("the answer has no valid {}".format(key))
    return value[:TEXT]


def refuse_twins(records: "list[Reading]", key: str) -> None:
    """Raise ValueError if two records have one name."""
    if len({record[key] for record in records}) < len(records):
        raise ValueError("the answer names one {} twice".format(key))
