"""irqbalance beside nodevet: a policy script keeps it away from the interrupts that nodevet places.

irqbalance(1): it calls the script with the folder of a device in /sys and the number of an
interrupt, and with `ban=true` it leaves that interrupt where it is.
"""

import re
from collections.abc import Sequence

from nodevet.evidence.document import Evidence
from nodevet.evidence.irqbalance import Irqbalance
from nodevet.fixing.model import FixError
from nodevet.fixing.units import RUNS, unit_of
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

UNIT = "irqbalance.service"
ASKS = {"services": (UNIT,), "irqbalance": (UNIT,)}
FOLDER = f"/etc/systemd/system/{UNIT}.d"
DROP_IN, POLICY = f"{FOLDER}/90-nodevet-irq-affinity.conf", f"{FOLDER}/nodevet-irq-affinity"
COMMAND = re.compile(r"/usr/sbin/irqbalance( --foreground)?( \$[A-Z_]+)*")
"""Of the packages of Debian, Ubuntu, RHEL and SUSE."""
BY_HAND = "give it a policy script that sets `ban=true` or `numa_node` for the function"
TEXT = """\
# Written by nodevet: irqbalance leaves the interrupts that nodevet-irq-affinity.service places.
[Service]
ExecStart=
ExecStart={command} --policyscript={policy}
"""
SCRIPT = """\
#!/bin/sh
# Written by nodevet for irqbalance: nodevet-irq-affinity.service places these interrupts.
case ${{1##*/}} in
{functions}) echo ban=true ;;
esac
"""
RESOURCES = (
    Resource(kind="file", name=POLICY),
    Resource(kind="file", name=DROP_IN),
    Resource(kind="unit", name=UNIT),
)


def is_live(evidence: Evidence) -> bool:
    """Whether irqbalance places interrupts, now or at boot. Raises FixError as `unit_of`."""
    unit = unit_of(evidence, UNIT)
    return unit.active_state in RUNS or unit.file_state == "enabled"


def keep_off(evidence: Evidence, addresses: Sequence[str]) -> Actions:
    """Keep irqbalance away from the interrupts of these PCI functions, and restart it.

    `addresses`: valid ones. Raises FixError if the site configured more than its options.
    """
    if unit_of(evidence, UNIT).active_state not in RUNS:
        raise FixError(f"{UNIT} starts at boot and does not run: start it, or disable it")
    if unit_of(evidence, UNIT).load_state == "masked":
        raise FixError(f"{UNIT} is masked and still runs: stop it, or unmask it")
    section = evidence[Irqbalance]
    if section.data is None:
        raise FixError(f"irqbalance: {section.why}")
    for field in ("exec_start", "others", "selinux_enforcing"):
        if getattr(section.data, field) is None:
            raise FixError(f"irqbalance: {field}: {section.data.why(field)}")
    if section.data.others:
        raise FixError(f"{section.data.others[0][:200]} is not the package's: {BY_HAND}")
    command = section.data.exec_start or ""
    if not COMMAND.fullmatch(command):
        raise FixError(f"nodevet does not know how {UNIT} starts irqbalance: {BY_HAND}")
    if section.data.selinux_enforcing:
        raise FixError(f"SELinux may forbid irqbalance to run nodevet's script: {BY_HAND}")
    script = SCRIPT.format(functions="|".join(addresses))
    return (
        WriteFile(path=POLICY, content=script, mode=0o755),
        WriteFile(path=DROP_IN, content=TEXT.format(command=command, policy=POLICY)),
        SetUnit(name=UNIT, running=True, restart=True),
    )
