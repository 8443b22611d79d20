"""The IPv4 addresses of interfaces, from the kernel: rtnetlink(7).

They are of this process's network namespace, so only the running machine's.
"""

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

NLMSG = struct.Struct("=IHHII")  # length, type, flags, sequence, port
IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, interface
ATTRIBUTE = struct.Struct("=HH")  # length, type
RTM_NEWADDR, RTM_GETADDR = 20, 22
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
MOST = 1 << 16  # addresses
BUFFER = 1 << 16  # bytes; the kernel's messages have at most 32 KiB
SECONDS = 5.0


def messages(data: bytes) -> "Iterator[tuple[int, bytes]]":
    """(type, body) of each message of one recv(2). Raises ValueError."""
    while data:
        if len(data) < NLMSG.size:
            raise ValueError("a truncated netlink message")
        length, kind, _, _, _ = NLMSG.unpack_from(data)
        if not NLMSG.size <= length <= len(data):
            raise ValueError("a netlink message of {} bytes".format(length))
        yield kind, data[NLMSG.size : length]
        data = data[(length + 3) & ~3 :]


def attributes(data: bytes) -> "dict[int, bytes]":
    """{type: value} of the attributes of a message. Raises ValueError."""
    values: "dict[int, bytes]" = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if not ATTRIBUTE.size <= length <= len(data):
            raise ValueError("a netlink attribute of {} bytes".format(length))
        values.setdefault(kind, data[ATTRIBUTE.size : length])
        data = data[(length + 3) & ~3 :]
    return values


def parse_address(body: bytes) -> "tuple[int, str]":
    """(index of the interface, "192.0.2.2/24") of one RTM_NEWADDR. Raises ValueError."""
    if len(body) < IFADDRMSG.size:
        raise ValueError("a truncated address")
    _, prefix, _, _, index = IFADDRMSG.unpack_from(body)
    values = attributes(body[IFADDRMSG.size :])
    local = values.get(IFA_LOCAL, values.get(IFA_ADDRESS, b""))
    if len(local) != 4:
        raise ValueError("an IPv4 address of {} bytes".format(len(local)))
    return index, "{}/{}".format(socket.inet_ntoa(local), prefix)


def addresses() -> "list[tuple[str, str]]":
    """(interface, "192.0.2.2/24") of every IPv4 address. Raises OSError, ValueError."""
    body = IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, 0)
    head = NLMSG.pack(NLMSG.size + len(body), RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    names = {index: name for index, name in socket.if_nameindex()}
    rows: "list[tuple[str, str]]" = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as connection:
        connection.settimeout(SECONDS)
        connection.send(head + body)
        while True:
            for kind, body in messages(connection.recv(BUFFER)):
                if kind == NLMSG_DONE:
                    return rows
                if kind == NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "netlink")
                if kind == RTM_NEWADDR:
                    index, address = parse_address(body)
                    rows.append((names.get(index, str(index)), address))
            if len(rows) > MOST:
                raise ValueError("more than {} addresses".format(MOST))
