"""IMEX, which shares GPU memory between the nodes of one NVLink domain: its peers and channels.

/etc/nvidia-imex/nodes_config.cfg, /dev/nvidia-caps-imex-channels/channel<N>.
"""

from nodevet.remote.probe.files import Reading, numbered, read, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONFIG = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
MOST_CHANNELS = 65536
MOST_NODES = 1024
NODE = 256  # characters of an address


def parse_nodes(text: str) -> "list[str]":
    """The addresses in a nodes_config.cfg, one on each row. Raises ValueError.

    >>> parse_nodes("# a domain\\n10.0.0.1\\n10.0.0.2  # tray 2\\n\\n")
    ['10.0.0.1', '10.0.0.2']
    """
    rows = [row.split("#", 1)[0].strip() for row in text_lines(text)]
    addresses = [row for row in rows if row]
    if len(addresses) > MOST_NODES or any(len(row) > NODE for row in addresses):
        raise ValueError("not a list of at most {} addresses".format(MOST_NODES))
    return addresses


def nodes(root: str) -> "list[str]":
    """Raises OSError, ValueError."""
    try:
        return parse_nodes(read(root, CONFIG))
    except FileNotFoundError:
        return []


def channels(root: str) -> int:
    """How many there are. Raises OSError, ValueError."""
    try:
        return len(numbered(root, CHANNELS, "channel", MOST_CHANNELS))
    except FileNotFoundError:
        return 0


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    section = Reading()
    section.take("nodes", nodes, root)
    section.take("channels", channels, root)
    return section
