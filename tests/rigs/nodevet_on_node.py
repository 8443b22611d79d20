"""nodevet on a simulated node, as its own root runs it: `nodevet check @local`."""

import shlex
import sys
import sysconfig
from pathlib import Path

from shown_folders import show

from simulated_fleet import SimulatedFleet

PYTHON = Path(sys.executable).resolve()
# not from the working directory: in /root a checkout named nodevet would be the package
ENTRY = f"import site, sys; sys.path.pop(0); site.addsitedir({sysconfig.get_path('purelib')!r}); "
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
    """Put /opt/nodevet/bin/nodevet on a node, with a link in /usr/local/bin."""
    show(fleet.name, node, fleet.project)
    path = "/opt/nodevet/bin/nodevet"
    fleet.run_on(node, f"{write(path, PROGRAM, '755')}; ln -sf {path} /usr/local/bin/nodevet")
