"""nodevet on a simulated node, as its own root runs it: `nodevet check @local`."""

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from simulated_fleet import SimulatedFleet

REPO = Path(__file__).parents[2]
# the node has this machine's files, but nothing of anyone's home
PYTHON = Path(sys.executable).resolve()
CARRIED = "/opt/carried"  # what of nodevet the node does not see: any user of it may read it
ENTRY = "import os, site, sys; "
ENTRY += f"site.addsitedir({CARRIED!r} if os.path.exists({CARRIED!r}) else "
ENTRY += f"{sysconfig.get_path('purelib')!r}); sys.path.insert(0, {CARRIED!r}); "
ENTRY += "from nodevet.__main__ import main; main()"
PROGRAM = f"""#!/bin/sh
p={PYTHON}
[ -x $p ] || p=/usr/bin/python3
exec $p -c {shlex.quote(ENTRY)} "$@"
"""


def write(path: str, text: str, mode: str = "644") -> str:
    """A script that writes a file."""
    return (
        f"mkdir -p {Path(path).parent}; printf %s {shlex.quote(text)} > {path}; chmod {mode} {path}"
    )


def install(fleet: SimulatedFleet, node: str) -> None:
    """Put /usr/local/bin/nodevet on a node."""
    if "there" not in fleet.on(node, f"ls {REPO}/nodevet && echo there", check=False):
        _carry(fleet, node)
    fleet.on(node, write("/usr/local/bin/nodevet", PROGRAM, "755"))


def _carry(fleet: SimulatedFleet, node: str) -> None:
    """Copy nodevet to the node: the checkout lies where the node has files of its own."""
    inside = "checks", "fixes", "baselines"  # as pip would install them
    words = ["tar", "-cf", "-", "--exclude=__pycache__"]
    words += [f"--transform=s,^{name},nodevet/{name}," for name in inside]
    words += ["-C", str(REPO), "nodevet", *inside, "-C", sysconfig.get_path("purelib"), "."]
    place, address = fleet.place, fleet.hosts[node].address
    ssh = ["ssh", "-F", "none", "-l", "root", "-i", place.key, "-o", "IdentitiesOnly=yes"]
    ssh += ["-o", f"UserKnownHostsFile={place.known_hosts}", str(address)]
    unpack = f"mkdir -p {CARRIED} && tar -C {CARRIED} -xf - && chmod 755 {CARRIED}"
    with subprocess.Popen(words, stdout=subprocess.PIPE) as tar:
        subprocess.run([*ssh, unpack], stdin=tar.stdout, check=True)
    assert tar.returncode == 0
