"""The power of running BMCs: how the node behaves, what it was asked for, and its switch."""

import subprocess
from typing import Any

from msgspec.structs import replace

from nodevet.bmc.power import PowerTimes, Switch, switch_of
from nodevet.bmc.secrets import read_secrets
from nodevet.model import Bmc

TIMES = PowerTimes(soft=20, off=20, rest=0.1, on=60, again=2, look=0.2, answer=30)
LOGGED = """#!/bin/sh
cd {0}
case "$2 $3" in
"get power") echo "power:$(cat power)"; exit ;;
"get boot") echo boot:default; exit ;;
esac
echo "$3 $4" >> asked
{1}
"""
OBEYS = """case "$3 $4" in
"power 1") echo 1 > power ;;
*) echo 0 > power ;;
esac"""
HANGS = 'test "$3 $4" = "shutdown 1" || ' + OBEYS.replace("\n", " ")
STAYS_ON = "exit 0"


def behave(simulated: Any, how: str = OBEYS, power: str = "1") -> None:
    """The node's power from now on."""
    folder = simulated.folder
    (folder / "power").write_text(f"{power}\n")
    (folder / "asked").write_text("")
    subprocess.run(["rm", "-rf", str(folder / "dropped")], check=True)
    partial = folder / "hook.new"
    partial.write_text(LOGGED.format(folder, how))
    partial.chmod(0o755)
    partial.replace(folder / "hook")


def asked_of(simulated: Any) -> list[str]:
    """The requests that reached the node."""
    return (simulated.folder / "asked").read_text().splitlines()


def is_on(simulated: Any) -> bool:
    return (simulated.folder / "power").read_text() == "1\n"


def switch(bmc: Bmc, **changes: Any) -> Switch:
    bmc = replace(bmc, **changes)
    return switch_of(bmc, read_secrets([bmc])[bmc.password], TIMES)


def off_of(simulated: Any) -> str:
    """How the hook sees a request to shut down: sushy's emulator has only power."""
    return "shutdown 1" if simulated.bmc.kind == "ipmi" else "power 0"
