"""Programs of this machine's distribution for simulated nodes; `.ci/node-tools` unpacks them."""

import subprocess
from pathlib import Path

import pytest
from shown_folders import leader

from simulated_fleet import SimulatedFleet

ROOT = Path("/var/cache/nodevet/node-tools")


def put_on_node(fleet: SimulatedFleet, node: str, tool: str) -> None:
    """Put one, such as `chrony`, and what it needs on a running node, as its package would, but run
    no script of the package and start nothing; the test is skipped if it is not there."""
    source = ROOT / tool
    if not source.is_dir():
        pytest.skip(f"no {source}: .ci/node-tools unpacks it")
    root = Path("/proc", str(leader(fleet.name, node)), "root")
    packed = subprocess.run(["tar", "-C", source, "-c", "."], capture_output=True, check=True)
    into = ("tar", "-C", root, "-x", "--no-same-owner", "--keep-directory-symlink")
    subprocess.run(into, input=packed.stdout, check=True)
    fleet.run_on(node, "ldconfig; systemctl daemon-reload")
