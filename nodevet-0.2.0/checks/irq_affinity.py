"""The interrupts of GPUs and NICs go to local CPUs.

**Why it matters.** An interrupt that the other socket handles crosses the link between the sockets
for every completion, and takes CPU time from a process that was bound there on purpose. At 400 Gb/s
this costs bandwidth and adds to the slowest rank's latency.

**Read from** `/proc/irq/*/effective_affinity_list` of every MSI interrupt of each GPU and NIC, and
their `local_cpulist`.

**Verdicts.** Fails if any of a function's interrupts goes to a CPU that is not local to it. A
function without interrupts, for example without a driver, is not applicable. NVMe drives are not
judged: the kernel spreads their queues over all CPUs, as it should, and does not let anyone change
that.

**To fix it** run irqbalance, which keeps interrupts on their NUMA node, or set them once with
`set_irq_affinity_bynode.sh` of the NIC's driver package and leave irqbalance off: see `services`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import first_unread, ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.evidence.pci_settings import ONE_GIGABIT, READS, PciSetting, each_setting, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Severity, not_applicable, unknown

ADVICE = (
    "start irqbalance, or restart it if it runs: it keeps interrupts on their NUMA node. If it "
    "is off on purpose, run the NIC driver's set_irq_affinity_bynode.sh at boot"
)


class Params(CheckParams):
    """`irq_affinity: {}` or `irq_affinity: {of: [nic]}`"""

    of: Annotated[tuple[Literal["gpu", "nic"], ...], Meta(min_length=1)] = (
        "gpu",
        "nic",
    )
    ignore: tuple[str, ...] = ONE_GIGABIT
    """Drivers or addresses of functions that are not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for setting in each_setting(evidence, params.of, params.ignore):
        yield setting if isinstance(setting, Finding) else judge_function(setting)


def judge_function(setting: PciSetting) -> Finding:
    subject = subject_of(setting)
    if setting.irqs is None:
        return unread(subject, setting, "irqs")
    if setting.irqs == 0:
        return not_applicable(subject, why="it has no interrupts")
    if finding := first_unread(subject, setting, "irq_cpus", "local_cpulist"):
        return finding
    used, local = numbers(setting.irq_cpus), numbers(setting.local_cpulist)
    if used is None or not local:
        field = "irq_cpus" if used is None else "local_cpulist"
        return unknown(subject, why=f"{field}: {(getattr(setting, field) or 'empty')[:60]}")
    if not used:
        return not_applicable(subject, why="none of its interrupts is in use")
    return ok_if(
        used <= local,
        subject,
        expected=f"CPUs {setting.local_cpulist}",
        actual=f"CPUs {setting.irq_cpus}",
        details={"interrupts": str(setting.irqs)},
        advice=ADVICE,
    )


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        *READS,
        *reads_of("pci_settings.functions[]", "driver", "irqs", "irq_cpus", "local_cpulist"),
    ),
    judge=judge,
    unasked="irqbalance and drivers differ: say irq_affinity: {} if your site places IRQs",
    severity=Severity.WARNING,
    asks=lambda params: {"pci_settings": ("interrupts",)},
)
