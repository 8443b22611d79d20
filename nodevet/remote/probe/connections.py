"""TCP connections: the kernel's tables, and the state of those for which threads wait.

/proc/<pid>/net/tcp, read once for each network namespace: the kernel walks all of its hash table,
which takes 5 to 10 ms. sock_diag(7), tcp(7): one query for each connection, after the last look, in
the network namespace of the process: setns(2) moves one thread there. A query changes nothing.
"""

import os
import struct

from nodevet.remote.probe.files import Reading, attempt, path_under, read_bytes, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable

CALLS = ("recvfrom", "recvmsg", "sendto", "sendmsg", "read", "readv", "write", "writev")
MOST = 64  # connections
LARGEST = 1 << 20  # bytes of one table of the kernel: 7,000 connections
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
INET_DIAG_INFO = 2
AF_INET, AF_INET6, IPPROTO_TCP = 2, 10, 6  # the module socket is slow to import
CLONE_NEWNET = 0x40000000
REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
ADDRESSES = struct.Struct(">HH16s16s")  # ports and addresses: this side, the peer
ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # of any interface and cookie
ANSWER = struct.Struct("=4x48x4xII4xI")  # inet_diag_msg: bytes to read, bytes to send; inode
BUFFER = 1 << 15
SECONDS = 1.0
# tcp_info of linux/tcp.h: the offset of a field, and its form
INFO = (
    ("resends_now", 2, "B"),  # tcpi_retransmits: in a row, without an answer
    ("silent_ms", 52, "I"),  # tcpi_last_data_recv
    ("round_trip_us", 68, "I"),  # tcpi_rtt
    ("resent", 100, "I"),  # tcpi_total_retrans
    ("sent", 136, "I"),  # tcpi_segs_out, since 4.2
    ("received", 140, "I"),  # tcpi_segs_in, since 4.2
    ("out_of_order", 224, "I"),  # tcpi_rcv_ooopack, since 5.4
)


def parse_reply(body: bytes, inode: int) -> "Reading":
    """The JSON form of nodevet.evidence.process_activity.TcpConnection of an inet_diag_msg. Raises
    ValueError."""
    from nodevet.remote.probe.netlink import attributes

    if len(body) < ANSWER.size:
        raise ValueError("a truncated answer about a socket")
    to_read, to_send, own_inode = ANSWER.unpack_from(body)
    if own_inode != inode:
        raise ValueError("the connection was closed meanwhile")
    record = Reading(receive_queue_b=to_read, send_queue_b=to_send)
    info = attributes(body[ANSWER.size :]).get(INET_DIAG_INFO, b"")
    for field, offset, form in INFO:
        if len(info) >= offset + struct.calcsize(form):
            record[field] = struct.unpack_from("=" + form, info, offset)[0]
        else:
            record.fail(field, "this kernel does not count it")
    return record


def end_of(text: str) -> "tuple[bytes, int]":
    """(address as in a packet, port) of an entry of /proc/net/tcp. Raises ValueError."""
    host, _, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    return struct.pack("={}I".format(len(words)), *words), int(port, 16)


def request(words: "list[str]") -> bytes:
    """The query for one row of /proc/net/tcp. Raises ValueError."""
    from nodevet.remote.probe.netlink import NLM_F_REQUEST, NLMSG

    (own, own_port), (peer, peer_port) = end_of(words[1]), end_of(words[2])
    family = AF_INET if len(own) == 4 else AF_INET6
    body = REQUEST.pack(family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, 0xFFFFFFFF)
    body += ADDRESSES.pack(own_port, peer_port, own, peer) + ANY
    return NLMSG.pack(NLMSG.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body


def ask(channel: "socket.socket", words: "list[str]") -> "Reading":
    """The state of one connection. Raises OSError, ValueError."""
    from nodevet.remote.probe.netlink import NLMSG_ERROR, messages

    channel.send(request(words))
    for kind, body in messages(channel.recv(BUFFER)):
        if kind == NLMSG_ERROR:
            code = -struct.unpack_from("=i", body)[0]
            raise OSError(code, os.strerror(code))
        if kind == SOCK_DIAG_BY_FAMILY:
            return parse_reply(body, int(words[9]))
    raise ValueError("no answer about the socket")


def open_channel() -> "socket.socket":
    import socket

    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    channel.settimeout(SECONDS)
    return channel


def in_namespace(path: str, work: "Callable[[], Any]") -> "Any":
    """What `work` returns in a thread in this network namespace. Raises OSError, ValueError."""
    import ctypes
    import threading

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
    """The connections of all watched processes."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.tables: "dict[str, list[list[str]]]" = {}  # by network namespace
        self.is_cut = False  # a table was longer, so what it lacks may still be there
        self.asked = 0

    def namespace(self, place: str) -> str:
        return os.readlink(path_under(self.root, place + "ns/net"))

    def rows(self, place: str) -> "list[list[str]]":
        """The rows of the tables of the process in this folder of the node's /proc."""
        key = attempt(self.namespace, place)[0] or place
        if key not in self.tables:
            self.tables[key] = [
                words
                for name in ("net/tcp", "net/tcp6")
                for row in self.lines(place + name)[1:]
                for words in [row.split()]
                if len(words) > 9
            ]
        return self.tables[key]

    def lines(self, path: str) -> "list[str]":
        data = attempt(read_bytes, self.root, path, LARGEST)[0] or b""
        self.is_cut = self.is_cut or len(data) >= LARGEST
        return text_lines(data.decode("ascii", "replace"))

    def state(self, place: str, words: "list[str]") -> "Reading":
        """The state of the connection of one of these rows. Raises OSError, ValueError."""
        self.asked += 1
        if self.asked > MOST:
            raise ValueError("more than {} connections were waited for".format(MOST))
        is_own = self.namespace(place) == os.readlink("/proc/self/ns/net")
        path = path_under(self.root, place + "ns/net")
        with open_channel() if is_own else in_namespace(path, open_channel) as channel:
            return ask(channel, words)
