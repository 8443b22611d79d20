"""IMEX on a healthy node of a multi-node NVLink domain: its service, its peers, a channel. Pure."""

DOMAIN = "00000001-0000-0000-0000-000000000001"  # cluster UUID of the fabric, as NVML has it
UNIT = "nvidia-imex.service"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
CONFIG, NODES = "/etc/nvidia-imex/config.cfg", "/etc/nvidia-imex/nodes_config.cfg"
PROGRAM = "/usr/bin/nvidia-imex"
UNIT_TEXT = f"""\
[Unit]
Description=NVIDIA IMEX service
After=network.target

[Service]
Type=simple
ExecStart={PROGRAM} -c {CONFIG}
LimitCORE=infinity

[Install]
WantedBy=multi-user.target
"""
# it shares no memory: what is told of it is that it runs, and which peers it was given
PROGRAM_TEXT = """\
#!/bin/sh
nodes=$(sed -n 's/^IMEX_NODE_CONFIG_FILE=//p' "$2")
if ! grep -q '^[0-9a-fA-F]' "$nodes"; then
    echo "nvidia-imex: no node is listed in $nodes" >&2
    exit 1
fi
exec sleep infinity
"""
SETTINGS = f"""\
IMEX_CMD_ENABLED=1
IMEX_NODE_CONFIG_FILE={NODES}
IMEX_SERVER_PORT=50000
LOG_LEVEL=4
"""


def root_files(nodes: int) -> dict[str, str]:
    """The files of the package and of the administrator; `nodes` of the domain."""
    return {
        f"/usr/lib/systemd/system/{UNIT}": UNIT_TEXT,
        PROGRAM: PROGRAM_TEXT,
        CONFIG: SETTINGS,
        NODES: "".join(f"{address(number)}\n" for number in range(nodes)),
    }


def address(number: int) -> str:
    """The address of a node of the domain, in its own network."""
    return f"10.60.{number // 250}.{number % 250 + 1}"
