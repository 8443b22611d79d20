"""Two simulated nodes, gpu1 with a BMC that speaks IPMI and gpu2 with one that speaks Redfish, and
a drain hook that drains and gives back."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bmcs import Emulator, IpmiSim, ipmi_sim, redfish_emulator

from nodevet.model import Bmc
from simulated_fleet import SimulatedFleet

HOOK = """#!/bin/sh
echo nodevet-hook: undrain
echo "$NODEVET_HOOK $1" >> hooked
case $NODEVET_HOOK in
drain) touch "drained-$1" ;;
undrain) rm -f "drained-$1" ;;
esac
"""


def two_nodes(gpus: int, first: str, second: str) -> str:
    """A scenario of gpu1 and gpu2: their number of GPUs, and the faults of each."""
    node = f"gpus: {{profile: h100-sxm, count: {gpus}}}, sockets: 1, cores: 1"
    return (
        "sim: 1\nnodes:\n"
        f"  gpu1: {{{node}, faults: [{first}]}}\n"
        f"  gpu2: {{{node}, faults: [{second}]}}\n"
    )


@contextmanager
def two_bmcs(
    fleet: SimulatedFleet, folder: Callable[[str], Path]
) -> Iterator[tuple[IpmiSim, Emulator]]:
    """Runs the BMCs, and writes `bmcs.yaml`, `hook` and `approval.yaml` into the project. ann plans
    and bob approves."""
    fleet.people("ann", "bob")
    approvals = "nodevet: 1\napprovals: {drain: 1, reboot: 1, one_way: 1}\n"
    (fleet.project / "approval.yaml").write_text(approvals)
    hook = fleet.project / "hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    with (
        ipmi_sim(folder("ipmi"), fleet.name, "gpu1") as ipmi,
        redfish_emulator(folder("redfish"), fleet.name, "gpu2") as redfish,
    ):
        hosts = {"gpu1": {"bmc": _settings(ipmi.bmc)}, "gpu2": {"bmc": _settings(redfish.bmc)}}
        document = json.dumps({"nodevet": 1, "hosts": hosts})
        (fleet.project / "bmcs.yaml").write_text(document)
        yield ipmi, redfish


def _settings(bmc: Bmc) -> dict[str, object]:
    kind, where = bmc.password
    return {
        **{key: getattr(bmc, key) for key in ("kind", "address", "port", "user")},
        **({"ca": bmc.ca} if bmc.ca else {}),
        "password": {kind: where},
        "power_group": "rack7-pdu2",
    }
