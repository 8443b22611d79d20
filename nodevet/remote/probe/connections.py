"""The state of the TCP connections for which threads wait, from the kernel: sock_diag(7), tcp(7).

One query for each connection, at the first look that sees a thread wait for it and after the last.
The query is made in the network namespace of the process, by a thread that enters it: setns(2)
moves that thread alone. A query changes nothing.
"""

import ctypes
import os
import socket
import struct
import threading

from nodevet.remote.probe.files import Reading, attempt
from nodevet.remote.probe.netlink import NLM_F_REQUEST, NLMSG, NLMSG_ERROR, attributes, messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

CALLS = ("recvfrom", "recvmsg", "sendto", "sendmsg", "read", "readv", "write", "writev")
MOST = 8  # connections
TABLE = 1 << 20  # bytes of one table of the kernel: 7,000 connections
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
INET_DIAG_INFO = 2
CLONE_NEWNET = 0x40000000
REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
ADDRESSES = struct.Struct(">HH16s16s")  # ports and addresses: this side, the peer
ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # of any interface and cookie
ANSWER = struct.Struct("=4x48x4xII8x")  # inet_diag_msg: bytes in the queues to read, to send
BUFFER = 1 << 15
SECONDS = 1.0
# tcp_info of linux/tcp.h: the offset of a field, and its form
INFO = (
    ("resends_now", 2, "B"),  # tcpi_retransmits: in a row, without an answer
    ("silent_ms", 52, "I"),  # tcpi_last_data_recv
    ("round_trip_us", 68, "I"),  # tcpi_rtt
    ("resent", 100, "I"),  # tcpi_total_retrans
    ("received_b", 128, "Q"),  # tcpi_bytes_received, since 4.1
    ("out_of_order", 224, "I"),  # tcpi_rcv_ooopack, since 5.4
)
COUNTERS = ("resent", "received_b", "out_of_order")


def parse_reply(body: bytes) -> "dict[str, int]":
    """The values of an inet_diag_msg; fields that the kernel does not have are left out. Raises
    ValueError."""
    if len(body) < ANSWER.size:
        raise ValueError("a truncated answer about a socket")
    to_read, to_send = ANSWER.unpack_from(body)
    values = {"receive_queue_b": to_read, "send_queue_b": to_send}
    info = attributes(body[ANSWER.size :]).get(INET_DIAG_INFO, b"")
    for field, offset, form in INFO:
        if len(info) >= offset + struct.calcsize(form):
            values[field] = struct.unpack_from("=" + form, info, offset)[0]
    return values


def end_of(text: str) -> "tuple[bytes, int]":
    """(address as in a packet, port) of an entry of /proc/net/tcp. Raises ValueError."""
    host, _, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    return struct.pack("={}I".format(len(words)), *words), int(port, 16)


def request(words: "list[str]") -> bytes:
    """The query for one row of /proc/net/tcp. Raises ValueError."""
    (own, own_port), (peer, peer_port) = end_of(words[1]), end_of(words[2])
    family = socket.AF_INET if len(own) == 4 else socket.AF_INET6
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, 0xFFFFFFFF)
    body += ADDRESSES.pack(own_port, peer_port, own, peer) + ANY
    return NLMSG.pack(NLMSG.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body


def ask(channel: "socket.socket", words: "list[str]") -> "dict[str, int]":
    """The state of one connection. Raises OSError, ValueError."""
    channel.send(request(words))
    for kind, body in messages(channel.recv(BUFFER)):
        if kind == NLMSG_ERROR:
            code = -struct.unpack_from("=i", body)[0]
            raise OSError(code, os.strerror(code))
        if kind == SOCK_DIAG_BY_FAMILY:
            return parse_reply(body)
    raise ValueError("no answer about the socket")


def open_channel() -> "socket.socket":
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    channel.settimeout(SECONDS)
    return channel


def in_namespace(path: str, work: "Callable[[], Any]") -> "Any":
    """What `work` returns in a thread in this network namespace. Raises OSError, ValueError."""
    results: "list[tuple[Any, Any]]" = []
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.open(path, os.O_RDONLY)

    def enter() -> "Any":
        if libc.setns(folder, CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return work()

    try:
        thread = threading.Thread(target=lambda: results.append(attempt(enter)))
        thread.start()
        thread.join()
    finally:
        os.close(folder)
    value, why = results[0]
    if value is None:
        raise ValueError(why)
    return value


class Connections(object):
    """The connections for which threads wait, each read twice."""

    def __init__(self) -> None:
        self.first: "dict[str, tuple[dict[str, int] | None, str | None]]" = {}
        self.channels: "dict[str, socket.socket]" = {}
        self.rows: "dict[str, dict[str, list[str]]]" = {}  # namespace: {inode: row}

    def look(self, folder: str, call: str, target: str) -> None:
        """Read a connection when a thread of the process in this folder first waits for it."""
        if call in CALLS and target.startswith("socket:[") and len(self.first) < MOST:
            if target not in self.first:
                self.first[target] = attempt(self.read, folder, target)

    def read(self, folder: str, target: str) -> "dict[str, int]":
        """The state of the connection of `socket:[inode]`. Raises OSError, ValueError,
        LookupError."""
        namespace = os.readlink(folder + "ns/net")
        inode = target[len("socket:[") : -1]
        if inode not in self.rows.get(namespace, {}):
            self.rows[namespace] = table(folder)
        words = self.rows[namespace][inode]
        if namespace not in self.channels:
            own = namespace == os.readlink("/proc/self/ns/net")
            self.channels[namespace] = (
                open_channel() if own else in_namespace(folder + "ns/net", open_channel)
            )
        return ask(self.channels[namespace], words)

    def record(self, folder: str, target: str) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.TcpConnection. Raises OSError,
        ValueError, LookupError."""
        first, _ = self.first[target]
        last = self.read(folder, target)
        names = ["receive_queue_b", "send_queue_b"] + [field for field, _, _ in INFO]
        record = Reading(**{field: last.get(field) for field in names if field not in COUNTERS})
        for field in COUNTERS:
            known = first is not None and field in first and field in last
            if known and first is not None and last[field] >= first[field]:
                record[field] = [first[field], last[field]]
            else:
                record.fail(field, "it was not read twice, or went back")
        return record

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()


def table(folder: str) -> "dict[str, list[str]]":
    """{inode: row} of the TCP connections in the namespace of a process. Raises OSError."""
    rows = {}
    for name in ("net/tcp", "net/tcp6"):
        with open(folder + name, "rb") as file:
            data = file.read(TABLE)
        for row in data.decode("ascii", "replace").splitlines()[1:]:
            words = row.split()
            if len(words) > 9:
                rows[words[9]] = words
    return rows
