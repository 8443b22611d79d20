"""The power of a simulated node as its BMC has it: the `chassis_control` program of OpenIPMI's
ipmi_sim(1), as in `chassis_control "python3 -m nodevet_sim.chassis FLEET NODE 0x20"`.

ipmi_sim has one thread, so nothing here waits for the node: its answers follow later.
"""

import sys
from collections.abc import Sequence

from nodevet_sim.nspawn.control import ControlError, ask
from nodevet_sim.nspawn.place import FleetFolder

SECONDS = 5.0
REQUESTS = {
    ("power", "0"): "off",
    ("power", "1"): "on",
    ("reset", "1"): "reset",
    ("shutdown", "1"): "soft",
}


def answer(fleet: str, node: str, words: Sequence[str]) -> str:
    """What ipmi_sim reads: a line for each `get`, nothing for a `set`. Raises ControlError."""
    verb, *rest = words
    if verb == "get":
        on = ask(FleetFolder(fleet), {"do": "power", "node": node}, seconds=SECONDS)["power"]
        values = {"power": f"power:{int(on)}", "boot": "boot:default"}
        return "".join(f"{values[name]}\n" for name in rest if name in values)
    request = REQUESTS.get((rest[0], rest[1])) if len(rest) == 2 else None
    if request is not None:
        ask(FleetFolder(fleet), {"do": "power", "node": node, "set": request}, seconds=SECONDS)
    return ""


def main() -> int:
    """The exit code of the program."""
    fleet, node, _controller, *words = sys.argv[1:]
    try:
        sys.stdout.write(answer(fleet, node, words))
    except ControlError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
