"""The ring sizes of network interfaces, from their drivers: ioctl(2) SIOCETHTOOL.

ETHTOOL_GRINGPARAM of include/uapi/linux/ethtool.h, which any user may ask. It is of this process's
network namespace, so only of the running machine.
"""

import errno
import struct
from array import array

SIOCETHTOOL = 0x8946
ETHTOOL_GRINGPARAM = 0x10
# struct ethtool_ringparam: the command; the most of rx, rx_mini, rx_jumbo, tx; the same now
RINGPARAM = struct.Struct("=9I")
IFREQ = struct.Struct("16sP16x")  # ifr_name, ifr_data
LONGEST = 15  # bytes of a name: IFNAMSIZ without the NUL


def ring_sizes(root: str, name: str) -> "dict[str, int]":
    """{rx, rx_max, tx, tx_max} of an interface, in descriptors of each ring; 0 for a ring that the
    driver does not have. Raises OSError, ValueError."""
    if root != "/":
        raise ValueError("drivers report ring sizes of the running machine only")
    import fcntl
    import socket

    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) > LONGEST:
        raise ValueError("the name is longer than {} bytes".format(LONGEST))
    rings = array("B", RINGPARAM.pack(ETHTOOL_GRINGPARAM, *[0] * 8))
    request = IFREQ.pack(raw, rings.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            fcntl.ioctl(opened.fileno(), SIOCETHTOOL, request)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            raise ValueError("its driver does not report ring sizes")
    values = RINGPARAM.unpack(rings.tobytes())
    return {"rx": values[5], "rx_max": values[1], "tx": values[8], "tx_max": values[4]}
