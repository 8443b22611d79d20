"""Send the interrupts of GPUs and NICs to local CPUs, now and at every boot.

**Now** nodevet starts the unit `nodevet-irq-affinity.service`. For every PCI function that the
check judges, the unit looks for interrupts that go to a CPU which is not local. It writes the
function's `local_cpulist` to their `/proc/irq/N/smp_affinity_list`, and the kernel chooses one of
these CPUs. It does not touch other interrupts.

**At every boot** the same unit runs again, because the numbers of the interrupts change.

**irqbalance** keeps placing all other interrupts. If it runs, nodevet gives it a policy script,
`/etc/systemd/system/irqbalance.service.d/nodevet-irq-affinity`, which bans the interrupts of these
functions (`ban=true` in irqbalance(1)). The drop-in `90-nodevet-irq-affinity.conf` names the
script, and nodevet restarts irqbalance. The options of `/etc/default/irqbalance` or
`/etc/sysconfig/irqbalance` stay in force.

**Risk** live: jobs continue.

**Rollback** restores the CPUs of each interrupt, unless a driver that was loaded again has other
interrupts by now, and removes the unit or restores the earlier one.
irqbalance restarts as it was before.

**What it cannot do.** It plans nothing if the site gives irqbalance a policy script or a command of
its own, if the site keeps CPUs or interrupts away from irqbalance (`IRQBALANCE_BANNED_CPULIST`,
`--banirq`, `--banmod`), if SELinux is enforcing, if irqbalance starts at boot and does not run, or
if it is masked and still runs: then a person changes the policy script. It also plans nothing if a
script places interrupts (`set_irq_affinity`, `RUN_AFFINITY_TUNER` of OFED, tuned), or if the kernel
command line keeps CPUs free of interrupts (isolcpus, nohz_full, irqaffinity). The kernel refuses
writes to interrupts that it manages itself: then the step fails, and nodevet rolls it back. On
machines without interrupt remapping, an interrupt moves only when it occurs again; if that takes
too long, the check still fails. If a driver is loaded again or an interface is configured again,
its interrupts may go to the earlier CPUs until the next boot. No test has moved the interrupts of
real hardware.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.irq_affinity import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.pci_settings import each_setting
from nodevet.fixing import irqbalance, pci
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.gpus import common_value
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.remote.pci_names import ADDRESS
from nodevet.resource import Resource
from nodevet.resource.unit import SetUnit

BOOT = BootUnit("irq_affinity")
KEPT_FREE = re.compile(r"(?:\A|\s)(?:isolcpus|nohz_full|irqaffinity)=")
SCRIPT = """\
failed=0;
numbers() { for part in $(echo $1 | tr , " "); do seq ${part%-*} ${part#*-}; done; };
place() {
device=/sys/bus/pci/devices/$1;
read -r cpus <$device/local_cpulist || { failed=1; return; };
near=" $(echo $(numbers $cpus)) ";
for file in $device/msi_irqs/*; do
irq=/proc/irq/${file##*/};
[ -e $irq ] || continue;
read -r now <$irq/effective_affinity_list || read -r now <$irq/smp_affinity_list || continue;
for cpu in $(numbers $now); do
case "$near" in *" $cpu "*) ;; *) echo $cpus >$irq/smp_affinity_list || failed=1; break;; esac;
done; done; };
"""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change of all functions; see `FIX`."""
    if why := kept_free(evidence):
        raise FixError(why)
    addresses = []
    for setting in each_setting(evidence, params.of, params.ignore):
        if isinstance(setting, Finding):
            raise FixError(f"{setting.subject.label or 'the functions'}: {setting.why}")
        if not ADDRESS.match(setting.address):
            raise FixError(f"{setting.address[:60]!r} is not the address of a PCI function")
        addresses.append(setting.address)
    if not {finding.subject.id for finding in failed} <= {*addresses}:
        raise FixError("the findings do not come from this evidence")
    calls = "".join(f"place {address};\n" for address in addresses)
    unit = SetUnit(name=BOOT.name, enabled=True, running=True, restart=True)
    is_live = irqbalance.is_live(evidence)
    first = irqbalance.keep_off(evidence, addresses) if is_live else ()
    yield PlannedChange(
        expected=common_value({each.subject.label: each.expected for each in failed}),
        actual=common_value({each.subject.label: each.actual for each in failed}),
        subjects=tuple(finding.subject.label for finding in failed),
        actions=(*first, pci.unit_file(BOOT, f"{SCRIPT}{calls}exit $failed"), unit),
        resources=(
            *(irqbalance.RESOURCES if first else ()),
            *BOOT.resources,
            *(Resource(kind="interrupts", name=address) for address in addresses),
        ),
        risk=Risk.LIVE,
    )


def kept_free(evidence: Evidence) -> str:
    """Why the command line keeps CPUs free of interrupts, or may do so; empty if it does not."""
    host = evidence[HostInfo].data
    if host is None or host.cmdline is None:
        return "nodevet could not read whether the command line keeps CPUs free of interrupts"
    words = KEPT_FREE.search(host.cmdline)
    return f"the kernel's command line has {words[0].strip()}" if words else ""


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return irqbalance.ASKS


FIX = Fix(plan=plan, risk=Risk.LIVE, asks=asks, after=("services", "persistence_mode"))
"""After services that start drivers, and with them their interrupts."""
